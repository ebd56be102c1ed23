"""Small line plots as text: braille dots, or plain characters where those cannot be shown."""

from collections.abc import Iterator, Sequence
from math import isfinite

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot of a braille character, by row and column."""


def plot(
    values: Sequence[float],
    *,
    width: int,
    height: int = 5,
    top: float = 1.0,
    braille: bool = True,
) -> list[str]:
    """A line through evenly spaced values, as `height` lines of `width` characters.

    The axis goes from 0 at the bottom to `top`; values outside are drawn at its ends. NaN is a
    gap. Of more values than fit side by side, a column shows the whole range.

    >>> plot([0, 1, 0], width=5, height=3, braille=False)
    ['  *  ', ' * * ', '*   *']
    >>> plot([0, 1], width=2, height=1)
    ['⡠⠊']
    """
    across, down = (2, 4) if braille else (1, 1)
    columns, rows = width * across, height * down
    dots = {(x, rows - 1 - y) for x, y in _line(values, columns=columns, rows=rows, top=top)}
    if not braille:
        return ["".join(" *"[(x, y) in dots] for x in range(columns)) for y in range(rows)]
    cells = [[0] * width for _ in range(height)]
    for x, y in dots:
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    return ["".join(chr(_BRAILLE + bits) if bits else " " for bits in row) for row in cells]


def _line(
    values: Sequence[float], *, columns: int, rows: int, top: float
) -> Iterator[tuple[int, int]]:
    """Dots, from the bottom up, of the values and of straight lines between neighbours."""
    before: tuple[int, int] | None = None
    for i, value in enumerate(values):
        if not isfinite(value):
            before = None
            continue
        x = round(i * (columns - 1) / max(len(values) - 1, 1))
        share = min(max(value / top, 0.0), 1.0) if top > 0 else 0.0
        point = x, round(share * (rows - 1))
        yield from _between(before or point, point)
        before = point


def _between(a: tuple[int, int], b: tuple[int, int]) -> Iterator[tuple[int, int]]:
    steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
    for i in range(steps + 1):
        yield round(a[0] + (b[0] - a[0]) * i / steps), round(a[1] + (b[1] - a[1]) * i / steps)
