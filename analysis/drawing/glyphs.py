"""The glyphs that a trace is drawn by."""

from collections.abc import Iterator
from typing import NamedTuple

from bokeh.models import (
    ColorBar,
    Glyph,
    Line,
    LinearColorMapper,
    Rect,
    Scatter,
    Segment,
    Step,
    Text,
    VArea,
    VBar,
)

from logitbank.analysis.drawing.paper import LEGIBLE, MUTED
from logitbank.analysis.drawing.sheet import Columns, Role, Trace

NEAR = 16
"""Pixels across, within which a point answers to hovering."""


class Part(NamedTuple):
    glyph: Glyph
    role: Role
    hover: bool = False


def glyphs(trace: Trace, columns: Columns) -> Iterator[Part]:
    """Its glyphs, from below."""
    if trace.shape == "curve":
        yield from _curve(trace)
    elif trace.shape == "points":
        yield from _reach(trace, columns)
        yield Part(_points(trace, columns, trace.size), trace.role, hover=bool(trace.told))
    elif trace.shape == "bars":
        yield Part(_bars(trace), trace.role, hover=True)
        yield from _reach(trace, columns)
    elif trace.shape == "cells":
        yield Part(_cells(trace), trace.role, hover=True)
        if "text" in columns:
            yield Part(_texts(), trace.role)


def _curve(trace: Trace) -> Iterator[Part]:
    look = {
        "line_color": trace.colour,
        "line_width": trace.width,
        "line_dash": trace.dash,
        "line_alpha": trace.alpha,
    }
    if trace.band:
        area = VArea(x="x", y1="low", y2="high", fill_color=trace.colour, fill_alpha=0.18)
        yield Part(area, "band")
    line = Step(x="x", y="value", mode="after", **look) if trace.stepped else Line(
        x="x", y="value", line_join="round", **look
    )  # fmt: skip
    yield Part(line, trace.role)
    if trace.told:
        yield Part(_points(trace, {}, trace.size), trace.role, hover=True)
    if trace.note:
        yield Part(_note(trace), trace.role)


def _points(trace: Trace, columns: Columns, size: float) -> Scatter:
    """Points; those of size 0 are not seen, but answer to hovering."""
    colour = "colour" if "colour" in columns else trace.colour
    seen = size > 0
    return Scatter(
        x="x",
        y="value",
        size=size or 5,
        marker=trace.symbol,
        hit_dilation=max(1.0, NEAR / (size or 5)),
        fill_color=colour,
        line_color=colour,
        line_width=trace.width if trace.symbol in ("x", "cross") else 1,
        # The rim stays opaque, so that a translucent point has the contrast of its colour.
        line_alpha=1 if seen and trace.alpha else 0,
        fill_alpha=("filled" if "filled" in columns else trace.alpha) if seen else 0,
    )


def _reach(trace: Trace, columns: Columns) -> Iterator[Part]:
    colour = MUTED if trace.shape == "bars" else trace.colour
    look = {"line_color": colour, "line_width": 1.3}
    if "y" in trace.reach and "low" in columns:
        yield Part(Segment(x0="x", x1="x", y0="low", y1="high", **look), trace.role)
    if "x" in trace.reach and "x_low" in columns:
        yield Part(Segment(x0="x_low", x1="x_high", y0="value", y1="value", **look), trace.role)


def _bars(trace: Trace) -> VBar:
    return VBar(
        x="x", top="value", bottom="base", width=trace.width, fill_color=trace.colour,
        line_color=None, fill_alpha=trace.alpha,
    )  # fmt: skip


def _cells(trace: Trace) -> Rect:
    colours = LinearColorMapper("Cividis256", low=trace.low, high=1, nan_color="rgba(0, 0, 0, 0)")
    fill = {"field": "value", "transform": colours}
    return Rect(x="x", y="y", width=1, height=1, fill_color=fill, line_color=fill, line_width=0.5)


def _texts() -> Text:
    return Text(
        x="x", y="y", text="text", text_color="ink", text_align="center", text_baseline="middle",
        text_font_size="11px",
    )  # fmt: skip


def _note(trace: Trace) -> Text:
    left, lines = trace.note_left, 1 if trace.note_brief else 1 + trace.note.count("\n")
    return Text(
        x="x", y="value", text="note", text_font_size="11px", text_color=LEGIBLE,
        text_baseline="top", text_align="right" if left else "left", x_offset=-5 if left else 5,
        y_offset=14 * lines * trace.note_row, tags=["ink"],
    )  # fmt: skip


def colour_bar(cells: Rect) -> ColorBar:
    """What the colours of cells mean."""
    mapper = cells.fill_color["transform"]
    return ColorBar(
        color_mapper=mapper, title="Pearson r", width=12, padding=4, title_text_font_size="12px",
        title_text_font_style="normal", title_text_color=LEGIBLE, major_label_text_color=LEGIBLE,
        background_fill_color=None, bar_line_color=None,
    )  # fmt: skip
