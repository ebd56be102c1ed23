"""Where training steps are along an axis: evenly by number, or in decades."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Literal

import numpy as np

from logitbank.analysis.drawing.paper import short
from logitbank.analysis.drawing.sheet import Axis, Columns
from logitbank.store.steps import Step

Scale = Literal["log", "linear"]
ZERO_DECADES = 0.45
"""Width of the stretch from step 0 to the first step after it, in decades."""
BESIDE = 1.06
"""Place of the release on a linear axis, of the last step."""
TICKS = 6
"""Most round numbers on a linear axis."""


def step_scale(steps: Sequence[Step]) -> Scale:
    """The axis on which these steps are told apart, from their spacing alone.

    Steps that are evenly spaced throughout are on a linear axis. So are those whose even spacing
    begins later, where it has at least half of them and less than a decade of a logarithmic axis:
    400 to 720 would be a tenth of it. All others, and fewer than four, are in decades.

    >>> step_scale([0, 1, 2, 4, 8, 16, 32, 64]), step_scale([0, 1, 8, 64, *range(100, 800, 50)])
    ('log', 'linear')
    """
    known = sorted({step for step in steps if step is not None})
    widths = [after - before for before, after in pairwise(known)]
    if len(widths) < 3:
        return "log"
    unit = median(widths[-3:])
    even = 0
    for at, width in enumerate(reversed(widths)):
        short_end = at == 0 and width < unit  # a run ends where its tokens do
        if not (short_end or 0.8 * unit <= width <= 1.25 * unit):
            break
        even += 1
    within_a_decade = known[-1] <= 10 * known[-1 - even]
    if even == len(widths) or (2 * even >= len(widths) and within_a_decade):
        return "linear"
    return "log"


class StepPlaces:
    """Places of training steps: 0 at the left, the release at the right.

    In decades, the first step after 0 is at 0.45, one of ten times as many at 1.45. On a linear
    axis a step is at its own number. `scale` is the axis that `step_scale` chooses.

    >>> places = StepPlaces([0, 10, 1000, None])
    >>> [round(places.place(step), 3) for step in (0, 10, 1000, None)]
    [0.0, 0.45, 2.45, 2.744]
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        known = [step for step in steps if step is not None]
        positive = [step for step in known if step > 0]
        self.scale = step_scale(steps)
        self.zero = 0 in known
        self.release = None in steps
        self.first = min(positive, default=1)
        self.last = max(positive, default=1)
        decades = math.log10(self.last / self.first) + (ZERO_DECADES if self.zero else 0)
        gap = max(0.12 * decades, 0.1)
        self._release_at = self.last * 10**gap if known else 1.0

    def place(self, step: Step) -> float:
        """Where a step is on the axis that is drawn first."""
        return self._linear(step) if self.scale == "linear" else self._decades(step)

    def late(self, step: Step) -> bool:
        """Whether a step is in the right half of the axis."""
        return self.place(step) > 0.5 * self.place(self.last)

    def ticks(self, scale: Scale) -> list[tuple[float, str]]:
        """Places and texts: 0, round numbers, and the release."""
        if scale == "linear":
            ticks = [(number, short(number)) for number in self._even_numbers()]
            release = self._linear(None)
        else:
            numbers = [0.0] if self.zero else []
            if self.last > 1 or not self.release:
                numbers += self._decade_numbers()
            ticks = [(self._of(number), short(number)) for number in numbers]
            release = self._decades(None)
        return [*ticks, (release, "release")] if self.release else ticks

    def about(self) -> dict[str, Any]:
        """What a page needs to draw these steps on either axis."""
        return {
            "scale": self.scale,
            "ticks": {
                scale: [[round(place, 5), text] for place, text in self.ticks(scale)]
                for scale in ("log", "linear")
            },
            "first": self.first,
            "last": self.last,
            "release": self.release,
        }

    def columns(self, steps: Sequence[Step]) -> Columns:
        """Steps as numbers (NaN: the release), and their places on either axis."""
        numbers = np.array([math.nan if step is None else step for step in steps], dtype=float)
        log = np.array([round(self._decades(step), 5) for step in steps], dtype=np.float32)
        linear = np.array([self._linear(step) for step in steps], dtype=float)
        drawn = linear if self.scale == "linear" else log
        return {"step": numbers, "x": drawn, "log": log, "linear": linear}

    def across(self) -> Axis:
        """The horizontal axis."""
        ticks = self.ticks(self.scale)
        left = self.place(0 if self.zero or not ticks else self.first)
        right = self.place(None if self.release else self.last)
        least = 0.05 if self.scale == "log" else 0.5
        margin = max(0.03 * (right - left), least)
        return Axis(
            "Training step",
            ends=(round(left - margin, 5), round(right + margin, 5)),
            ticks=[(round(place, 5), text) for place, text in ticks],
            grid=False,
        )

    def _linear(self, step: Step) -> float:
        return BESIDE * self.last if step is None else float(step)

    def _decades(self, step: Step) -> float:
        """Steps between 0 and the first one are in proportion."""
        return self._of(self._release_at if step is None else float(step))

    def _of(self, number: float) -> float:
        ratio = number / self.first
        return ZERO_DECADES * ratio if ratio < 1 else math.log10(ratio) + ZERO_DECADES

    def _decade_numbers(self) -> list[float]:
        first, last = float(self.first), float(self.last)
        decades = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
        for factors in ((1,), (1, 3), (1, 2, 5)):
            numbers = [float(f * 10**d) for d in decades for f in factors]
            inside = [number for number in numbers if first <= number <= last]
            if len(inside) >= 3:
                return inside
        return sorted({first, last})

    def _even_numbers(self) -> list[float]:
        """Multiples of 1, 2 or 5 in a place, at most `TICKS` of them."""
        low = 0 if self.zero else self.first
        width = max(1, self.last - low)
        power = 10 ** max(0, math.floor(math.log10(width)) - 1)
        sizes = (factor * power for factor in (1, 2, 5, 10, 20, 50))
        size = next(size for size in sizes if width / size <= TICKS - 1)
        return [float(n) for n in range(-(-low // size) * size, self.last + 1, size)]
