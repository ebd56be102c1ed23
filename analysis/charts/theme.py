"""Colours and the Altair theme of logitbank's charts."""

from collections.abc import Iterable
from itertools import cycle
from typing import Any

import altair as alt

INK = "#1f2329"
MUTED = "#7d828b"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8f98"
"""Male, female, neutral: from Okabe and Ito's palette, which suits colour-blind readers."""
PURPLE, GREEN = "#8e5ea2", "#009e73"
DELTA = PURPLE
"""The gap between genders, in the charts of fairness."""
PALETTE = (BLUE, ORANGE, GREEN, "#99226b", "#5c4500", "#30209a")
"""For other series. The palette's pink, yellow and light blue have a contrast below 3 on white."""
GENDERED = {
    **dict.fromkeys(("male", "he", "him", "his", "man"), BLUE),
    **dict.fromkeys(("female", "she", "her", "hers", "woman"), ORANGE),
    **dict.fromkeys(("not specified", "neutral", "they", "other"), GREY),
}
"""Groups and options that have the same colour everywhere."""
WIDTHS = {"single": 3.3, "double": 7.0}
"""Inches of one column and of two in most journals."""
SIZE = 8
"""Points of text."""
POINTS = 72
"""Points of an inch; a unit of length in a chart is a point on paper."""


def color_map(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: that of `GENDERED`, or else the next one of the palette.

    >>> color_map(["female", "toy"])
    {'female': '#d55e00', 'toy': '#0072b2'}
    """
    names = list(dict.fromkeys(names))
    taken = {GENDERED[name] for name in names if name in GENDERED}
    free = cycle([color for color in PALETTE if color not in taken])
    return {name: GENDERED.get(name) or next(free) for name in names}


@alt.theme.register("logitbank", enable=False)
def _theme() -> alt.theme.ThemeConfig:
    return {"config": config()}


def config() -> Any:
    """Vega-Lite configuration: sizes in points, text in one colour, faint horizontal grid."""
    return {
        "background": None,
        "view": {"stroke": None},
        "font": "Arial, Helvetica, sans-serif",
        "title": {"fontSize": SIZE + 1, "color": INK, "anchor": "start", "fontWeight": "normal"},
        "axis": {
            "labelFontSize": SIZE, "titleFontSize": SIZE, "labelColor": INK, "titleColor": INK,
            "titleFontWeight": "normal", "domainColor": MUTED, "tickColor": MUTED,
            "gridColor": MUTED, "gridOpacity": 0.25, "labelFlush": False,
        },
        "axisX": {"grid": False},
        "legend": {
            "labelFontSize": SIZE, "titleFontSize": SIZE, "labelColor": INK, "titleColor": INK,
            "titleFontWeight": "normal", "orient": "top", "title": None, "labelLimit": 0,
            "symbolType": "stroke", "symbolOpacity": 1, "offset": 4,
        },
        "header": {
            "labelFontSize": SIZE, "titleFontSize": SIZE, "labelColor": INK, "titleColor": INK,
        },
        "line": {"strokeWidth": 1.5},
        "rule": {"color": MUTED},
        "text": {"fontSize": SIZE, "color": INK},
    }  # fmt: skip


def theme() -> None:
    """Use logitbank's theme for all Altair charts of this Python session."""
    alt.theme.enable("logitbank")
