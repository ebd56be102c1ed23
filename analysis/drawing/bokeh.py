"""Draws a sheet with Bokeh, which only this module and `glyphs` know.

A page moves what is here by tags: every renderer has its trace's, panels `panel`, the axes of
training steps `steps`, the upright line at a checkpoint `cursor`, the title `title`.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from bokeh import __version__
from bokeh.core.properties import value as text_value
from bokeh.core.serialization import Serializer
from bokeh.document import Document
from bokeh.layouts import column
from bokeh.models import (
    BasicTickFormatter,
    CDSView,
    ColumnDataSource,
    DataRange1d,
    FixedTicker,
    GlyphRenderer,
    HoverTool,
    IndexFilter,
    Label,
    Legend,
    LegendItem,
    Model,
    MultiLine,
    NumeralTickFormatter,
    Range1d,
    Rect,
    Span,
    Title,
)
from bokeh.plotting import figure

from logitbank.analysis.drawing.glyphs import colour_bar, glyphs
from logitbank.analysis.drawing.paper import FAINT, LEGIBLE, MUTED, legend_columns
from logitbank.analysis.drawing.sheet import (
    Axis,
    Interactive,
    Panel,
    Sheet,
    Trace,
    plain,
)

LEGEND_ROW, ACROSS, TOP = 23, 46, 34
"""Pixels of a row of the legend, of a horizontal axis, and of the toolbar."""
LEGEND_LETTERS = 42.5
"""Letters of a line of the legend that a telephone shows whole."""


def drawn(sheet: Sheet) -> Interactive:
    """The figure, in which what should be seen first is visible."""
    shared = _range(sheet.across)
    several = len(sheet.panels) > 1
    plots = [
        _plot(panel, sheet, shared, whole=not several, last=panel is sheet.panels[-1])
        for panel in sheet.panels
    ]
    named: list[dict[str, list[GlyphRenderer]]] = [{} for _ in plots]
    """By panel: each name stands in the legend of the first that has it."""
    tags = []
    for at, plot in enumerate(plots):
        hovered: dict[tuple[str, ...], list[GlyphRenderer]] = {}
        for trace in (trace for trace in sheet.traces if trace.panel == at):
            for renderer in _renderers(trace, sheet):
                plot.renderers.append(renderer)
                tags.append(renderer.tags[0])
                if "hover" in renderer.tags:
                    hovered.setdefault(_lines(trace), []).append(renderer)
                new = trace.name and not any(trace.name in one for one in named[:at])
                if new and renderer.tags[0]["role"] != "band":
                    named[at].setdefault(trace.name, []).append(renderer)
        for lines, renderers in hovered.items():
            tooltips = [("", line) for line in lines]
            plot.add_tools(HoverTool(renderers=renderers, tooltips=tooltips, limit=3))
        cells = [one for one in plot.renderers if isinstance(one.glyph, Rect)]
        if cells:
            plot.add_layout(colour_bar(cells[0].glyph), "right")
        plot.toolbar.logo = None
    plots[0].height += TOP
    if sum(map(len, named)) > 1 or sheet.legend:
        for plot, names in zip(plots, named, strict=True):
            plot.height += _legend(plot, names) if names else 0
    plots[0].add_layout(_title(sheet), "above")
    height = sum(plot.height for plot in plots)
    model = column(plots, sizing_mode="stretch_width", spacing=0) if several else plots[0]
    return Interactive(model, sheet.meta(height=height), tags)


def embedded(model: Model) -> dict[str, Any]:
    """A model as the script of a page embeds it: what `bokeh.embed.json_item` gives.

    That one collects all models four times, to validate them and to look for callbacks in Python,
    which takes half of its time: 0.6 s of processor for seven figures, and 0.3 without.
    """
    document = Document(title="").to_json(deferred=False)
    roots = Serializer(deferred=False).encode([model])
    return {
        "target_id": None,
        "root_id": model.id,
        "doc": {**document, "roots": roots},
        "version": __version__,
    }


def _plot(panel: Panel, sheet: Sheet, shared: Model, *, whole: bool, last: bool) -> Any:
    """Axes without anything drawn in them but what is for reference."""
    across = panel.across or sheet.across
    shown = last or panel.across is not None
    plot = figure(
        height=panel.height + (ACROSS if shown else 8),
        sizing_mode="stretch_width",
        x_range=shared if panel.across is None else _range(panel.across),
        y_range=_range(panel.axis),
        x_axis_type="log" if across.log else "linear",
        y_axis_type="log" if panel.axis.log else "linear",
        tools=f"{'' if whole else 'x'}box_zoom,pan,{'' if whole else 'x'}wheel_zoom,reset,save",
        active_drag=f"{'' if whole else 'x'}box_zoom",
        active_scroll=None,
        toolbar_location="above" if panel is sheet.panels[0] else None,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border=8,
        max_width=panel.height + 150 if panel.square else None,
        tags=["panel"],
    )
    _dress(plot.xaxis[0], plot.xgrid[0], across)
    _dress(plot.yaxis[0], plot.ygrid[0], panel.axis)
    plot.xaxis.visible = shown
    if sheet.kind == "training":
        plot.xaxis.tags = ["steps"]
        plot.add_layout(Span(dimension="height", location=0, visible=False, line_color=MUTED,
                             line_width=1, tags=["cursor"]))  # fmt: skip
    for along, place in panel.rules:
        plot.add_layout(Span(dimension="width" if along == "y" else "height", location=place,
                             line_color=MUTED, line_dash="dashed",
                             level="overlay" if panel.square else "underlay"))  # fmt: skip
    if panel.paths:
        ends = {"x": [[x for x, _ in path] for path in panel.paths],
                "y": [[y for _, y in path] for path in panel.paths]}  # fmt: skip
        glyph = MultiLine(xs="x", ys="y", line_color=MUTED, line_alpha=0.6, line_width=0.8)
        plot.add_glyph(ColumnDataSource(ends), glyph, level="underlay")
    for note in panel.notes:
        where: dict[str, Any] = {"x": 6, "x_units": "screen"} if note.x is None else {"x": note.x}
        plot.add_layout(
            Label(
                **where, y=note.y, text=plain(note.text), text_font_size=f"{note.size}px",
                text_color=note.colour or LEGIBLE, text_baseline="bottom" if note.above else "top",
                text_align="left" if note.x is None else "center",
                tags=[] if note.colour else ["ink"],
            )
        )  # fmt: skip
    return plot


def _range(axis: Axis) -> Any:
    if axis.names and axis.ends is None:
        ends = (-0.6, len(axis.names) - 0.4)
        return Range1d(*(reversed(ends) if axis.turned else ends))
    if axis.ends is not None:
        return Range1d(*(reversed(axis.ends) if axis.turned else axis.ends))
    start = {"start": 0} if axis.from_zero else {}
    return DataRange1d(only_visible=True, flipped=axis.turned, **start)


def _dress(drawn_axis: Any, grid: Any, axis: Axis) -> None:
    drawn_axis.axis_label = plain(axis.title) if axis.title else None
    drawn_axis.axis_label_text_font_style = "normal"
    drawn_axis.axis_label_text_font_size = "12px"
    drawn_axis.axis_label_text_color = drawn_axis.major_label_text_color = LEGIBLE
    drawn_axis.axis_line_color = drawn_axis.major_tick_line_color = MUTED
    drawn_axis.minor_tick_line_color = None
    grid.grid_line_color = FAINT if axis.grid else None
    ticks = list(enumerate(axis.names)) if axis.names else list(axis.ticks)
    if ticks:
        drawn_axis.ticker = FixedTicker(ticks=[place for place, _ in ticks])
        drawn_axis.major_label_overrides = {place: plain(text) for place, text in ticks}
        if axis.names:
            drawn_axis.major_tick_out = drawn_axis.major_tick_in = 0
    elif axis.log:
        drawn_axis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    else:
        drawn_axis.ticker.desired_num_ticks = 5
        drawn_axis.formatter = BasicTickFormatter(power_limit_low=-6, power_limit_high=8)


def _renderers(trace: Trace, sheet: Sheet) -> list[GlyphRenderer]:
    """What a trace is drawn by, from below; the one that answers to hovering has that tag, too."""
    log = sheet.panels[trace.panel].axis.log
    columns = _columns(trace, log=log)
    source = ColumnDataSource(columns)
    made = []
    for part in glyphs(trace, columns):
        points = source
        if part.role == "band":
            known = np.isfinite(columns["low"] + columns["high"] + columns["value"])
            if not known.all():
                points = ColumnDataSource({name: np.asarray(values)[known]
                                        for name, values in columns.items()
                                        if isinstance(values, np.ndarray)})  # fmt: skip
        tag = replace(trace, role=part.role).tag
        options: dict[str, Any] = {"view": CDSView(filter=_last(trace))} if trace.slides else {}
        made.append(
            GlyphRenderer(
                data_source=points,
                glyph=part.glyph,
                name=plain(trace.head) or None,
                visible=sheet.seen(trace),
                tags=[tag, *(["hover"] if part.hover else [])],
                **options,
            )
        )
    return made


def _columns(trace: Trace, *, log: bool) -> dict[str, Any]:
    """As Bokeh takes them: the release is NaN, and a band on a log axis ends above 0."""
    columns = dict(trace.columns)
    if isinstance(columns.get("step"), list):
        columns["step"] = np.array(
            [math.nan if step is None else step for step in columns["step"]], dtype=float
        )
    if log and "low" in columns:
        least = np.concatenate([columns["low"], columns["value"]])
        positive = least[least > 0]
        if len(positive):
            columns["low"] = np.where(columns["low"] > 0, columns["low"], positive.min())
    if trace.note:
        lines = trace.note.splitlines()
        lines = [lines[0].rstrip(":")] if trace.note_brief else lines
        note = "\n".join(map(plain, lines))
        columns["note"] = [*[""] * (len(columns["x"]) - 1), note]
    return columns


def _last(trace: Trace) -> IndexFilter:
    last = trace.tag["steps"][-1]
    steps = trace.columns["step"]
    return IndexFilter(indices=[at for at, step in enumerate(steps) if step == last])


def _lines(trace: Trace) -> tuple[str, ...]:
    return (*(["$name"] if trace.head else []), *(f"@{column}" for column in trace.told))


def _legend(plot: Any, named: dict[str, list[GlyphRenderer]]) -> int:
    """A legend above the plot, and its height."""
    seen = [name for name, renderers in named.items() if any(one.visible for one in renderers)]
    columns = legend_columns(seen, letters=LEGEND_LETTERS)
    rows = -(-len(seen) // columns)
    legend = Legend(
        items=[
            LegendItem(label=text_value(plain(name)), renderers=renderers, visible=name in seen)
            for name, renderers in named.items()
        ],
        orientation="horizontal",
        ncols=columns,
        location="left",
        click_policy="none",
        background_fill_color=None,
        border_line_color=None,
        label_text_color=LEGIBLE,
        label_text_font_size="12px",
        padding=0,
        margin=4,
        spacing=12,
        glyph_height=16,
        label_height=16,
        tags=[rows],  # a page gives the plot more height where more names are shown
    )
    plot.add_layout(legend, "above")
    return LEGEND_ROW * rows


def _title(sheet: Sheet) -> Title:
    """For notebooks; a page has its own."""
    text = sheet.headline if len(sheet.headline) <= 90 else sheet.headline[:89] + "…"
    return Title(text=plain(text), text_color=LEGIBLE, tags=["title"])
