"""The artists that a trace is drawn by on paper."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rcParams
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgba

from logitbank.analysis.drawing.paper import MUTED, STYLE
from logitbank.analysis.drawing.sheet import Columns, Trace
from logitbank.store.steps import Step

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

    Handle = Artist | BarContainer
else:
    Handle = Any

POINTS = 0.6
"""Points on paper to a pixel of a page, of symbols; lines have 0.8."""
SYMBOLS = {
    "circle": "o", "diamond": "D", "x": "x", "cross": "+", "star": "*", "square": "s",
}  # fmt: skip
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (4, 2)),
    "dotted": (0, (1, 1.6)),
    "dashdot": (0, (5, 2, 1, 2)),
    "dotdash": (0, (1, 2, 4, 2)),
}
COLOUR_MAP = "cividis"
"""Even in lightness, and the same to colour-blind readers."""
UNDEFINED = "#d9dce1"
"""Cells that have no value."""


def draw(axes: "Axes", trace: Trace) -> Handle | None:
    """A trace, and what stands for it in a legend."""
    columns = _last(trace) if trace.slides else trace.columns
    if not len(columns["value"]):
        return None
    if trace.shape == "curve":
        return _curve(axes, trace, columns)
    if trace.shape == "points":
        _reach(axes, trace, columns)
        return _points(axes, trace, columns)
    if trace.shape == "bars":
        return _bars(axes, trace, columns)
    _cells(axes, trace, columns)
    return None


def write(axes: "Axes", traces: "Sequence[Trace]") -> None:
    """Texts at points, those of marks first, the others where there is room."""
    from matplotlib.transforms import Bbox

    taken: list[Bbox] = []
    for trace in sorted(traces, key=lambda trace: trace.role != "mark"):
        if not trace.written:
            continue
        columns = trace.columns
        for x, y, text in zip(*(columns[of] for of in ("x", "value", trace.written)), strict=True):
            if not text or not np.isfinite(x + y):
                continue
            bar = trace.shape == "bars"
            below = bar and y < columns["base"][0]
            ink = rcParams["text.color"] if bar or trace.role == "mark" else trace.colour
            note = axes.annotate(
                line_of(text), (x, y), xytext=(0 if bar else 5, -3 if below else 3),
                textcoords="offset points", ha="center" if bar else "left",
                va="top" if below else "bottom", fontsize=points(7.5), color=ink,
            )  # fmt: skip
            place = note.get_window_extent()
            if not bar and place.x1 > axes.get_figure(root=True).bbox.x1:  # type: ignore[union-attr]
                note.set(ha="right", position=(-5, 3))
                place = note.get_window_extent()
            if any(place.overlaps(other) for other in taken):
                note.remove()
            else:
                taken.append(place)


def points(size: float) -> float:
    """A size of text, of which `font.size` is 8 unless a style changes it."""
    points: float = size / STYLE["font.size"] * rcParams["font.size"]
    return points


def line_of(text: object) -> str:
    """Text in one line."""
    return " ".join(str(text).splitlines())


def last_step(trace: Trace) -> Step:
    """The checkpoint that is drawn of several."""
    step: Step = trace.tag["steps"][-1]
    return step


def _last(trace: Trace) -> Columns:
    last = last_step(trace)
    shown = [step == last for step in trace.columns["step"]]
    return {
        name: values[np.array(shown)]
        if isinstance(values, np.ndarray)
        else [value for value, kept in zip(values, shown, strict=True) if kept]
        for name, values in trace.columns.items()
    }


def _curve(axes: "Axes", trace: Trace, columns: Columns) -> Handle:
    x, values = columns["x"], columns["value"]
    if trace.band:
        low, high = columns["low"], columns["high"]
        known = np.isfinite(low + high + values)
        axes.fill_between(x, low, high, where=known, color=trace.colour, alpha=0.18, lw=0)
    _reach(axes, trace, columns)
    (line,) = axes.plot(
        x,
        values,
        color=trace.colour,
        lw=0.5 * trace.width * rcParams["lines.linewidth"],
        ls=DASHES[trace.dash],
        alpha=trace.alpha,
        drawstyle="steps-post" if trace.stepped else "default",
        marker=SYMBOLS[trace.symbol] if trace.size else "",
        ms=POINTS * trace.size,
        zorder=1.9 if trace.colour == MUTED else 2,
    )
    if trace.note:
        axes.annotate(
            line_of(trace.note), (x[-1], values[-1]), textcoords="offset points",
            xytext=(-4 if trace.note_left else 4, -10 * trace.note_row),
            ha="right" if trace.note_left else "left", va="top", fontsize=points(7.5),
            color=rcParams["text.color"],
        )  # fmt: skip
    return line


def _points(axes: "Axes", trace: Trace, columns: Columns) -> Handle:
    wide = POINTS * trace.size * (1.5 if trace.symbol == "star" else 1)  # a star fills little
    look: dict[str, Any] = {"s": wide**2, "marker": SYMBOLS[trace.symbol]}
    if trace.symbol in ("x", "cross"):
        look |= {"color": trace.colour, "linewidths": 0.6 * trace.width}
    elif "filled" in columns:
        faces = [to_rgba(trace.colour, filled * trace.alpha) for filled in columns["filled"]]
        look |= {
            "facecolors": faces,
            "edgecolors": to_rgba(trace.colour, trace.alpha),
            "linewidths": 0.9,
        }
    else:
        colours = columns.get("colour", trace.colour)
        look |= {"color": colours, "linewidths": 0, "alpha": trace.alpha}
    return axes.scatter(columns["x"], columns["value"], zorder=2.5, **look)


def _reach(axes: "Axes", trace: Trace, columns: Columns) -> None:
    """Thin lines from end to end."""
    colour = MUTED if trace.shape == "bars" else trace.colour
    for along, ends in (("y", ("low", "high")), ("x", ("x_low", "x_high"))):
        if along in trace.reach and ends[0] in columns:
            low, high = (columns[name] for name in ends)
            across = columns["x" if along == "y" else "value"]
            known = np.isfinite(low + high + across)
            lines = axes.vlines if along == "y" else axes.hlines
            lines(across[known], low[known], high[known], color=colour, lw=1.1)


def _bars(axes: "Axes", trace: Trace, columns: Columns) -> Handle:
    base = columns["base"]
    bars = axes.bar(
        columns["x"], columns["value"] - base, bottom=base, width=trace.width,
        color=trace.colour, alpha=trace.alpha, linewidth=0,
    )  # fmt: skip
    _reach(axes, trace, columns)
    return bars


def _cells(axes: "Axes", trace: Trace, columns: Columns) -> None:
    """Cells as vectors, since a report embeds no picture, with edges, or browsers show gaps."""
    count = 1 + max([*columns["x"].tolist(), *columns["y"].tolist()])
    matrix = np.full((count, count), np.nan)
    matrix[columns["y"], columns["x"]] = columns["value"]
    edges = np.arange(count + 1) - 0.5
    axes.set_facecolor(UNDEFINED)
    axes.pcolormesh(
        edges, edges, matrix, cmap=COLOUR_MAP, vmin=trace.low, vmax=1.0, edgecolors="face",
        linewidth=0.5, clip_on=False,
    )  # fmt: skip
    for spine in axes.spines.values():
        spine.set_visible(False)
    for x, y, text, ink in zip(
        *(columns.get(name, ()) for name in ("x", "y", "text", "ink")), strict=False
    ):
        axes.text(x, y, text, ha="center", va="center", fontsize=points(7), color=ink)


def colour_bar(figure: "Figure", all_axes: "Sequence[Axes]") -> None:
    """What the colours of cells mean, once for all panels."""
    meshes = [
        shape for axes in all_axes for shape in axes.collections if isinstance(shape, QuadMesh)
    ]
    if not meshes:
        return
    low, _ = meshes[0].get_clim()
    values = np.concatenate([np.ravel(np.ma.filled(mesh.get_array(), np.nan)) for mesh in meshes])  # type: ignore[arg-type]
    known = values[np.isfinite(values)]
    below = bool(len(known)) and low is not None and known.min() < low
    bar = figure.colorbar(
        meshes[0], ax=list(all_axes), shrink=0.8, aspect=24, pad=0.03,
        extend="min" if below else "neither",
    )  # fmt: skip
    assert bar.solids is not None
    bar.solids.set_rasterized(False)  # an embedded picture would not show in a report
    bar.solids.set_edgecolor("face")
    bar.outline.set_visible(False)
    bar.set_label("Pearson r")
