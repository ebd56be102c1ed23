"""Draws a sheet with Matplotlib, for paper, which only this module and `artists` know.

Matplotlib's object interface: no window system and no global state is involved.
"""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from logitbank.analysis.drawing.artists import (
    Handle,
    colour_bar,
    draw,
    last_step,
    line_of,
    points,
    write,
)
from logitbank.analysis.drawing.paper import MUTED, PAPER, Paper, legend_columns, short
from logitbank.analysis.drawing.sheet import Axis, Panel, Sheet
from logitbank.wording import step_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Ticked

PIXELS = 90
"""Pixels of a panel's height to an inch."""
LOW = 0.72
"""Part of a panel's height that is left of it where the figure is as wide as one column."""
BESIDE = 1.3
"""Least inches of a panel that stands beside others."""
SQUARE = 1.6
"""Least inches of a side of a square panel that stands beside others."""
MARGIN = 0.6
"""Inches of what is written at the vertical axis."""
LINE, AROUND = 0.17, 0.55
"""Inches of a line of the legend, and of what is written at the horizontal axis."""
LETTER = 0.065
"""Inches of a letter."""
NAME = 24
"""Letters of a name that stands upright."""


def drawn(sheet: Sheet, paper: Paper = PAPER) -> Figure:
    """The figure, whose label (`get_label()`) is its caption; it has no title.

    Of what has a slider on a page, the last checkpoint is drawn, which the caption says. What is
    told on hovering is not there.
    """
    with rc_context(paper.settings()):  # type: ignore[arg-type]
        figure, all_axes = _empty(sheet, paper)
        named = [_fill(axes, sheet, at) for at, axes in enumerate(all_axes)]
        colour_bar(figure, all_axes)
        _legends(sheet, all_axes, named)
        _write(figure, sheet, all_axes)
        figure.set_label(_caption(sheet))
    return figure


def _empty(sheet: Sheet, paper: Paper) -> "tuple[Figure, list[Axes]]":
    """A figure with axes for every panel, and nothing drawn in them."""
    low = LOW if paper.width == "single" else 1
    heights = [_height(panel, low) for panel in sheet.panels]
    columns, shape = 1, dict[str, Any]()
    if sheet.beside:
        columns, side = _columns(sheet, paper)
        heights = [
            min(h, side) if p.square else h for h, p in zip(heights, sheet.panels, strict=True)
        ]
        heights = [max(heights[at : at + columns]) for at in range(0, len(heights), columns)]
    axes_of_their_own = sum(panel.across is not None for panel in sheet.panels)
    extra = len(heights) - 1 if sheet.beside else axes_of_their_own
    lines = 0.0 if sheet.beside else LINE * _lines(sheet, paper)
    size = paper.inches, sum(heights) + AROUND + 0.45 * extra + min(lines, 2)
    shape = {"nrows": len(heights), "ncols": columns, "height_ratios": heights}
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(**shape, hspace=0.05)
    all_axes: list[Axes] = []
    shared = None
    for at, panel in enumerate(sheet.panels):
        axes = figure.add_subplot(
            grid[divmod(at, columns)], sharex=shared if panel.across is None else None
        )
        if panel.across is None:
            shared = shared or axes
        all_axes.append(axes)
    return figure, all_axes


def _height(panel: Panel, low: float) -> float:
    """Inches; names along the side need their lines in a low panel too."""
    lines = LINE * len(panel.axis.names) if not panel.square else 0
    return max(panel.height / PIXELS * low, min(lines, panel.height / PIXELS))


def _columns(sheet: Sheet, paper: Paper) -> tuple[int, float]:
    """How many panels stand beside each other, and the inches of each."""
    names = max((len(name) for panel in sheet.panels for name in panel.axis.names), default=0)
    room = paper.inches - MARGIN - LETTER * min(names, NAME)
    least = SQUARE if any(panel.square for panel in sheet.panels) else BESIDE
    columns = max(1, min(len(sheet.panels), int(room / least)))
    return columns, room / columns


def _lines(sheet: Sheet, paper: Paper) -> int:
    """Lines of legends above panels that are above each other."""
    names = list(dict.fromkeys(line_of(trace.name) for trace in sheet.traces if trace.name))
    if not names:
        return 0
    return -(-len(names) // legend_columns(names, letters=_letters(paper.inches)))


def _letters(inches: float) -> float:
    """Letters of a legend's line, or of names along the horizontal axis, in this width."""
    return (inches - MARGIN) / LETTER


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
    place = axes.get_subplotspec()
    assert place is not None
    beside = not place.is_first_col() and panel.axis.names == sheet.panels[0].axis.names
    values = [trace.columns["value"] for trace in traces if "y" not in trace.columns]
    _dress(axes, "y", panel.axis, values, labelled=not beside)
    _dress(axes, "x", across, [trace.columns["x"] for trace in traces], labelled=below)
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
            fontsize=points(8 * note.size / 11),
            color=note.colour or rcParams["text.color"],
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
        letters = _room(axes) if side == "x" else _height_of(axes) / LETTER
        target.set_label_text(fill(line_of(axis.title), round(letters)))
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
    figure, place = axes.get_figure(root=True), axes.get_subplotspec()
    assert figure is not None
    assert place is not None
    names = max((len(text.get_text()) for text in axes.get_yticklabels()), default=0)
    letters = _letters(figure.get_figwidth()) / place.get_gridspec().ncols
    return max(letters - max(names - 6, 0), 12)


def _height_of(axes: "Axes") -> float:
    """Inches of a panel, nearly."""
    figure, place = axes.get_figure(root=True), axes.get_subplotspec()
    assert figure is not None
    assert place is not None
    parts = np.asarray(place.get_gridspec().get_height_ratios(), dtype=float)
    return float((figure.get_figheight() - AROUND) * parts[place.rowspan.start] / parts.sum())


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
                ncols=legend_columns(list(new), letters=0.95 * _room(axes)),
            )  # fmt: skip


def _write(figure: Figure, sheet: Sheet, all_axes: "Sequence[Axes]") -> None:
    """Texts at points, which need the places that axes have in the end."""
    if any(trace.written for trace in sheet.traces):
        figure.draw_without_rendering()
        for at, axes in enumerate(all_axes):
            write(axes, [trace for trace in sheet.traces if trace.panel == at])


def _caption(sheet: Sheet) -> str:
    """What the figure shows, of what, and how it is to be read."""
    texts = [f"{sheet.headline}.", sheet.explained]
    if sheet.kind == "checkpoint":
        steps = {last_step(trace) for trace in sheet.traces if trace.slides}
        step = step_name(steps.pop()) if len(steps) == 1 else "the last checkpoint of each"
        texts.append(f"Drawn is {step}.")
    return " ".join(map(line_of, texts))


def _plain_log(axis: "Ticked", values: np.ndarray) -> None:
    """Decade ticks in plain numbers, and 1, 2, 5 where there are fewer than three decades."""
    known = values[values > 0]
    low, high = (known.min(), known.max()) if len(known) else (1.0, 10.0)
    subs = (1.0,) if high / low >= 1000 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
