"""What a reader sees in a drawn chart: its texts with their boxes, its axes, and its colours."""

import math
import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree

NARROW, SLIM, WIDE = set("ilj.,:;'|!I·"), set('ftr()[]-–/* “”"'), set("mwMW@%—→←")
SUPERSCRIPTS = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
SLACK = 1.0
"""Points by which estimated boxes may touch, or leave the canvas."""

Affine = tuple[float, float, float, float, float, float]
"""a, b, c, d, e and f of x′ = a x + c y + e and y′ = b x + d y + f."""


class Text(NamedTuple):
    """A text and its box, in points from the upper left corner."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Text") -> bool:
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide > SLACK and high > SLACK


class Axis(NamedTuple):
    """An axis as Vega describes it, and the numbers at the places of its ticks."""

    about: str
    ticks: list[tuple[float, float]]
    """Pairs of number and place."""


class Picture:
    """A chart drawn as SVG."""

    def __init__(self, svg: str) -> None:
        root = ElementTree.fromstring(svg)
        self.width, self.height = float(root.attrib["width"]), float(root.attrib["height"])
        self.texts: list[Text] = []
        self.axes: list[Axis] = []
        self.colors: set[str] = set()
        """Of the lines, points and areas that are drawn; legends are left out."""
        self.broken: list[str] = []
        """Shapes at places that are no numbers."""
        self._read(root, (1, 0, 0, 1, 0, 0), 1.0, legend=False)

    def off_canvas(self) -> list[Text]:
        return [
            text
            for text in self.texts
            if min(text.left, text.top) < -SLACK
            or text.right > self.width + SLACK
            or text.bottom > self.height + SLACK
        ]

    def overlaps(self) -> list[tuple[str, str]]:
        return [(a.text, b.text) for a, b in combinations(self.texts, 2) if a.meets(b)]

    def _read(
        self, part: ElementTree.Element, outer: Affine, opacity: float, *, legend: bool
    ) -> None:
        look = part.attrib
        placed = _within(outer, look.get("transform", ""))
        opacity *= float(look.get("opacity", 1)) * float(look.get("fill-opacity", 1))
        role = look.get("class", "")
        legend = legend or "role-legend" in role
        tag = part.tag.rsplit("}", 1)[-1]
        if tag == "text" and opacity > 0:
            self.texts += _text_lines(part, placed)
        if tag == "path":
            if "NaN" in look.get("d", "") or "NaN" in look.get("transform", ""):
                self.broken.append(str(look))
            if not legend and look.get("d"):
                self.colors |= {look.get("fill", ""), look.get("stroke", "")}
        if "role-axis" in role and "axis titled" in look.get("aria-label", ""):
            self.axes.append(_axis(part, placed))
        for each in part:
            self._read(each, placed, opacity, legend=legend)


def distorted(axis: Axis, *, log: bool) -> float:
    """How far ticks are from where the scale has them, as a share of the length of the axis."""
    scaled = [(math.log10(number) if log else number, place) for number, place in axis.ticks]
    (first, start), (last, end) = scaled[0], scaled[-1]
    unit = (end - start) / (last - first)
    return max(abs(start + unit * (at - first) - place) / abs(end - start) for at, place in scaled)


def number(text: str) -> float | None:
    """The number of a label such as −0.5, 20k, 10⁻³ and 2·10⁻⁴."""
    plain = text.replace("−", "-").replace(",", "")
    factor, _, power = plain.rpartition("10")
    if power and set(power) <= set(SUPERSCRIPTS):
        digits = "".join("-0123456789"[SUPERSCRIPTS.index(each)] for each in power)
        return float(factor.rstrip("·") or 1) * math.pow(10, int(digits))
    match = re.fullmatch(r"(-?\d*\.?\d+(?:e[-+]?\d+)?)([kMG]?)", plain)
    return None if match is None else float(match[1]) * UNITS.get(match[2], 1)


def _axis(part: ElementTree.Element, placed: Affine) -> Axis:
    about = part.attrib["aria-label"]
    labels = [
        (value, text)
        for text in _texts(part, placed, "role-axis-label")
        if (value := number(text.text)) is not None
    ]
    if about.startswith("X"):
        ticks = [(value, (text.left + text.right) / 2) for value, text in labels]
    else:
        ticks = [(value, (text.top + text.bottom) / 2) for value, text in labels]
    return Axis(about, sorted(ticks))


def _texts(part: ElementTree.Element, placed: Affine, role: str) -> Iterator[Text]:
    for each in part:
        inner = _within(placed, each.attrib.get("transform", ""))
        if role in each.attrib.get("class", ""):
            for text in each:
                shown = text.attrib.get("opacity", "1") != "0" and (text.text or "").strip()
                if shown:
                    yield _text(text, _within(inner, text.attrib.get("transform", "")))
        else:
            yield from _texts(each, inner, role)


def _text_lines(part: ElementTree.Element, placed: Affine) -> Iterator[Text]:
    """The text of an element, or its lines, each below the one before."""
    down = 0.0
    for each in [part, *part]:
        down += float(each.attrib.get("dy", 0))
        if (each.text or "").strip():
            line = ElementTree.Element("text", part.attrib)
            line.text = each.text
            yield _text(line, _within(placed, f"translate(0,{down})"))


def _text(part: ElementTree.Element, placed: Affine) -> Text:
    size = float(part.attrib["font-size"].removesuffix("px"))
    text = part.text or ""
    width = size * sum(map(_width, text))
    start = {"middle": -width / 2, "end": -width}.get(part.attrib.get("text-anchor", ""), 0.0)
    a, b, c, d, e, f = placed
    corners = [(x, y) for x in (start, start + width) for y in (-0.72 * size, 0.2 * size)]
    xs = [a * x + c * y + e for x, y in corners]
    ys = [b * x + d * y + f for x, y in corners]
    return Text(text, min(xs), min(ys), max(xs), max(ys))


def _width(letter: str) -> float:
    """Widths of Helvetica in parts of the font's size, roughly."""
    if letter in NARROW:
        return 0.26
    if letter in SLIM or letter in SUPERSCRIPTS:
        return 0.33
    if letter in WIDE:
        return 0.83
    return 0.69 if letter.isupper() else 0.54


def _within(outer: Affine, transform: str) -> Affine:
    for name, inside in re.findall(r"(\w+)\(([^)]*)\)", transform):
        values = [float(each) for each in re.split(r"[ ,]+", inside.strip())]
        if name == "translate":
            inner = (1.0, 0.0, 0.0, 1.0, values[0], (*values, 0.0)[1])
        elif name == "rotate":
            turn = math.radians(values[0])
            inner = (math.cos(turn), math.sin(turn), -math.sin(turn), math.cos(turn), 0.0, 0.0)
        else:
            assert name == "scale", name
            inner = (values[0], 0.0, 0.0, values[-1], 0.0, 0.0)
        a, b, c, d, e, f = outer
        p, q, r, s, t, u = inner
        outer = (
            a * p + c * q, b * p + d * q, a * r + c * s, b * r + d * s,
            a * t + c * u + e, b * t + d * u + f,
        )  # fmt: skip
    return outer
