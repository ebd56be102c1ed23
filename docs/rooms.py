"""The map of the page on architecture: rooms as they lie on disk, and who imports whom."""

from collections import Counter
from html import escape

from scripts.source import imports, modules, rooms

LAYERS = (("api",), ("cli",), ("analysis", "engine"), ("store",))
WIDTH, LINE, TITLE, GAP, CHIP = 760, 22, 26, 46, 6.6


def rooms_page() -> str:
    """The map as an SVG, then every room with its sentence: in Markdown."""
    rows = "\n".join(
        f"| `{folder}/` | {text} | {count} |" for folder, (text, count) in sorted(rooms().items())
    )
    table = "| Room | What it is for | Modules |\n|---|---|---|"
    return f"```{{raw}} html\n{_map()}\n```\n\n{table}\n{rows}\n"


def _map() -> str:
    inner: dict[str, list[str]] = {}
    for folder in sorted(rooms()):
        top, _, room = folder.partition("/")
        inner.setdefault(top, []).append(room)
    boxes: dict[str, tuple[float, float, float, float]] = {}
    shapes, y = [], 10.0
    for layer in LAYERS:
        width = (WIDTH - 20 * (len(layer) - 1)) / len(layer)
        lines = {top: _wrapped([r for r in inner[top] if r], width - 24) for top in layer}
        height = TITLE + 14 + LINE * max(map(len, lines.values()))
        for i, top in enumerate(layer):
            x = i * (width + 20)
            boxes[top] = (x, y, width, height)
            shapes.append(_box(top, lines[top], boxes[top]))
        y += height + GAP
    crossings = Counter(
        (a, b)
        for name, used in imports().items()
        for other in used
        if (a := _top(name)) != (b := _top(other)) and a != "api" and b != "api"
    )
    arrows = [_arrow(boxes[a], boxes[b], n) for (a, b), n in sorted(crossings.items())]
    head = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {y - GAP + 10:.0f}" role="img" style="max-width:100%"'
        ' font-family="sans-serif" font-size="12" aria-label="Rooms of the source, and how many'
        f' imports go from one to another">\n<defs>{head}</defs>\n'
        + "\n".join([*arrows, *shapes])
        + "\n</svg>"
    )


def _top(module: str) -> str:
    return modules()[module].relative_to(modules()["logitbank"].parents[1]).parts[0]


def _wrapped(names: list[str], width: float) -> list[str]:
    lines = [""]
    for name in names:
        longer = f"{lines[-1]}   {name}".strip()
        if len(longer) * CHIP > width and lines[-1]:
            lines.append(name)
        else:
            lines[-1] = longer
    return lines


def _box(top: str, lines: list[str], box: tuple[float, float, float, float]) -> str:
    x, y, width, height = box
    texts = "".join(
        f'<text x="{x + 12:.0f}" y="{y + TITLE + 12 + LINE * i:.0f}" fill="currentColor"'
        f' xml:space="preserve">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<rect x="{x + 1:.0f}" y="{y:.0f}" width="{width - 2:.0f}" height="{height:.0f}" rx="8"'
        ' fill="currentColor" fill-opacity="0.06" stroke="currentColor"/>'
        f'<text x="{x + 12:.0f}" y="{y + 20:.0f}" font-weight="bold" fill="currentColor">'
        f"{top}/</text>{texts}"
    )


def _arrow(
    start: tuple[float, float, float, float], end: tuple[float, float, float, float], count: int
) -> str:
    """Down from one box to another; one that skips a layer runs in the gap between the two."""
    x1 = x2 = (max(start[0], end[0]) + min(start[0] + start[2], end[0] + end[2])) / 2
    y1, y2 = start[1] + start[3], end[1]
    if y2 - y1 > GAP + 1:
        x1 = x2 = WIDTH / 2
    return (
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="currentColor"'
        f' marker-end="url(#tip)"/><text x="{x1 + 8:.0f}" y="{y1 + 27:.0f}" fill="currentColor">'
        f"{count} imports</text>"
    )
