"""Draws a sheet with Matplotlib, for paper, which only this module and `artists` know.

Matplotlib's object interface: no window system and no global state is involved.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from logitbank.analysis.drawing.artists import Handle, colour_bar, draw, last_step, line_of, write
from logitbank.analysis.drawing.paper import INK, MUTED, STYLE, short
from logitbank.analysis.drawing.sheet import Axis, Panel, Sheet, legend_columns, when

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Ticked

WIDTH = 6.6
"""Inches of a figure whose panels are above each other."""
BESIDE = 1.75
"""Inches of a panel that stands beside others."""
PIXELS = 90
"""Pixels of a panel's height to an inch."""
LINE, AROUND = 0.2, 0.75
"""Inches of a line of the legend, and of the title and the horizontal axis."""
LETTER = 0.075
"""Inches of a letter."""
NAME = 24
"""Letters of a name that stands upright."""
LETTERS = 92
"""Letters of the legend's text to a line, of names along the horizontal axis too."""


def drawn(sheet: Sheet) -> Figure:
    """The figure, whose label (`get_label()`) is its caption.

    Of what has a slider on a page, the last checkpoint is drawn, which the caption says. What is
    told on hovering is not there.
    """
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure, all_axes = _empty(sheet)
        named = [_fill(axes, sheet, at) for at, axes in enumerate(all_axes)]
        colour_bar(figure, all_axes)
        _legends(sheet, all_axes, named)
        _write(figure, sheet, all_axes)
        step = _step(sheet)
        names = list(sheet.series) if len(sheet.series) == 1 else []
        _headline(figure, line_of(sheet.title), [*map(line_of, names), *([step] if step else [])])
        figure.set_label(_caption(sheet, step))
    return figure


def _empty(sheet: Sheet) -> "tuple[Figure, list[Axes]]":
    """A figure with axes for every panel, and nothing drawn in them."""
    count, heights = len(sheet.panels), [panel.height / PIXELS for panel in sheet.panels]
    if sheet.beside:
        sides = [h if p.square else BESIDE for h, p in zip(heights, sheet.panels, strict=True)]
        names = max((len(name) for panel in sheet.panels for name in panel.axis.names), default=0)
        size = sum(sides) + 1 + LETTER * names, max(heights) + AROUND
        shape: dict[str, Any] = {"nrows": 1, "ncols": count, "width_ratios": sides}
    else:
        lines = LINE * sum(bool(trace.name) for trace in sheet.traces) / 4
        axes_of_their_own = sum(panel.across is not None for panel in sheet.panels)
        size = WIDTH, sum(heights) + AROUND + 0.5 * axes_of_their_own + min(lines, 2)
        shape = {"nrows": count, "ncols": 1, "height_ratios": heights}
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(**shape, hspace=0.05)
    all_axes: list[Axes] = []
    shared = None
    for panel, place in zip(sheet.panels, grid, strict=True):  # type: ignore[call-overload]
        axes = figure.add_subplot(place, sharex=shared if panel.across is None else None)
        if panel.across is None:
            shared = shared or axes
        all_axes.append(axes)
    return figure, all_axes


def _fill(axes: "Axes", sheet: Sheet, at: int) -> dict[str, Handle]:
    """Everything of a panel, and what its legend names."""
    panel = sheet.panels[at]
    across = panel.across or sheet.across
    if panel.axis.names and any(trace.slides for trace in sheet.traces):
        across = replace(across, ends=None)  # they hold every checkpoint, of which one is drawn
    axes.set_xscale("log" if across.log else "linear")
    axes.set_yscale("log" if panel.axis.log else "linear")
    for path in panel.paths:
        axes.plot(*zip(*path, strict=True), color=MUTED, lw=0.6, alpha=0.6, zorder=1)
    named: dict[str, Handle] = {}
    traces = [trace for trace in sheet.traces if trace.panel == at]
    for trace in traces:
        handle = draw(axes, trace)
        if trace.name and handle is not None:
            named.setdefault(line_of(trace.name), handle)
    _reference(axes, panel)
    below = panel.across is not None or sheet.beside or at == len(sheet.panels) - 1
    _dress(axes, "x", across, [trace.columns["x"] for trace in traces], labelled=below)
    beside = sheet.beside and at > 0 and panel.axis.names == sheet.panels[0].axis.names
    values = [trace.columns["value"] for trace in traces if "y" not in trace.columns]
    _dress(axes, "y", panel.axis, values, labelled=not beside)
    if panel.square:
        axes.set_aspect("equal")
    return named


def _reference(axes: "Axes", panel: Panel) -> None:
    """Dashed lines and texts."""
    for along, place in panel.rules:
        line = axes.axhline if along == "y" else axes.axvline
        dashes: Any = (0, (4, 3))
        if panel.square:  # upon cells, which are dark
            line(place, color="white", lw=1.1, ls=dashes, zorder=3)
        else:
            line(place, color=MUTED, lw=0.9, ls=dashes, zorder=1)
    for note in panel.notes:
        at_side = note.x is None
        axes.text(
            0.01 if note.x is None else note.x,
            note.y,
            line_of(note.text),
            transform=axes.get_yaxis_transform() if at_side else axes.transData,
            ha="left" if at_side else "center",
            va="bottom" if note.above else "top",
            fontsize=0.72 * note.size,
            color=note.colour or INK,
        )


def _dress(
    axes: "Axes", side: str, axis: Axis, values: Sequence[np.ndarray], *, labelled: bool
) -> None:
    """Limits, ticks, grid and title of one side, after everything is drawn."""
    target = axes.xaxis if side == "x" else axes.yaxis
    if axis.log:
        _plain_log(target, np.concatenate([np.empty(0), *values]))
    ticks = list(enumerate(axis.names)) if axis.names else list(axis.ticks)
    if ticks:
        texts = [line_of(text) for _, text in ticks]
        target.set_ticks([place for place, _ in ticks], texts)
        target.set_ticks([], minor=True)
    if axis.names:
        if side == "x" and len(axis.names) * (max(map(len, axis.names)) + 2) > _room(axes):
            target.set_ticklabels(
                [text if len(text) <= NAME else text[: NAME - 1] + "…" for text in texts]
            )
            axes.tick_params(axis="x", rotation=90)
        axes.tick_params(axis=side, length=0)  # type: ignore[arg-type]
        axes.spines["left" if side == "y" else "bottom"].set_visible(False)
    if not labelled:
        axes.tick_params(axis=side, labelbottom=False, labelleft=False)  # type: ignore[arg-type]
    elif axis.title:
        target.set_label_text(line_of(axis.title))
    ends = (-0.6, len(axis.names) - 0.4) if axis.names and axis.ends is None else axis.ends
    limits = axes.set_xlim if side == "x" else axes.set_ylim
    if ends is not None:
        limits(*(reversed(ends) if axis.turned else ends))
    else:
        if axis.from_zero:
            most = axes.dataLim.x1 if side == "x" else axes.dataLim.y1
            limits(0, 1.06 * most if most > 0 else 1)
        target.set_inverted(axis.turned)
    if axis.grid:
        axes.grid(axis=side)  # type: ignore[arg-type]


def _room(axes: "Axes") -> float:
    """Letters along the horizontal axis."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    place = axes.get_subplotspec()
    assert place is not None
    return LETTERS / WIDTH * figure.get_figwidth() / place.get_gridspec().ncols


def _legends(sheet: Sheet, all_axes: "Sequence[Axes]", named: Sequence[dict[str, Handle]]) -> None:
    """Above each panel, what is new in it."""
    seen: set[str] = set()
    if len({name for one in named for name in one}) < 2 and not sheet.legend:
        return
    for axes, handles in zip(all_axes, named, strict=True):
        new = {name: handle for name, handle in handles.items() if name not in seen}
        seen |= new.keys()
        if new:
            axes.legend(
                list(new.values()), list(new), loc="lower left", bbox_to_anchor=(0.0, 1.015),
                ncols=legend_columns(list(new), letters=LETTERS),
            )  # fmt: skip


def _write(figure: Figure, sheet: Sheet, all_axes: "Sequence[Axes]") -> None:
    """Texts at points, which need the places that axes have in the end."""
    if any(trace.written for trace in sheet.traces):
        figure.draw_without_rendering()
        for at, axes in enumerate(all_axes):
            write(axes, [trace for trace in sheet.traces if trace.panel == at])


def _step(sheet: Sheet) -> str:
    """The checkpoint that is drawn of several, where it is the same for all."""
    if sheet.kind != "checkpoint":
        return ""
    steps = {last_step(trace) for trace in sheet.traces if trace.slides}
    return when(steps.pop()) if len(steps) == 1 else ""


def _caption(sheet: Sheet, step: str) -> str:
    if sheet.kind != "checkpoint":
        return sheet.caption
    return f"{sheet.caption} Drawn is {step or 'the last checkpoint of each'}."


def _headline(figure: Figure, title: str, names: Sequence[str]) -> None:
    """What the figure shows, and of what, in one line; long names are shortened."""
    short_names = (name if len(name) <= 32 else name[:31] + "…" for name in names)
    text = " · ".join([title, *short_names])
    figure.suptitle(text, x=0.01, ha="left", fontsize=10.5, fontweight="bold")


def _plain_log(axis: "Ticked", values: np.ndarray) -> None:
    """Decade ticks in plain numbers, and 1, 2, 5 where there are fewer than three decades."""
    known = values[values > 0]
    low, high = (known.min(), known.max()) if len(known) else (1.0, 10.0)
    subs = (1.0,) if high / low >= 1000 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
