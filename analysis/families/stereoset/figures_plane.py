"""The plane of StereoSet: lms against ss, with lines of equal iCAT."""

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import INK, MUTED, headline, short
from logitbank.analysis.families.stereoset.measures import REFERENCES, icat
from logitbank.analysis.families.stereoset.scores import BOTH
from logitbank.analysis.families.stereoset.summary import series_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""From Okabe and Ito's palette, which colour-blind readers tell apart."""
MARKERS = "osD^vPX"
LABELS = {
    "lms": "lms: meaningful preferred, %",
    "ss": "ss: stereotype preferred, %",
    "icat": "iCAT",
}
DEFINED = (
    "lms: how often a meaningful candidate beats the unrelated one; ss: how often the stereotype "
    "beats the anti-stereotype, of which 50 is no preference. Means over target terms."
)


def told_intervals(table: pl.DataFrame, what: str) -> str:
    """A sentence of a caption about the intervals that are drawn; nothing where there are none."""
    drawn = table["ss_low"].is_not_nan().any()
    return f" {what}: 95 % bootstrap intervals over target terms." if drawn else ""


def lms_against_ss(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.add_subplot()
    away = np.abs(table["ss"].drop_nans().to_numpy() - 50)
    reach = min(max(float(away.max(initial=0)) + 3, 14), 51.5)
    low = max(float(table["lms"].drop_nans().to_numpy().min(initial=50)) - 4, -2)
    _contours(axes, reach, low)
    for name in ("ideal", "random"):
        lms, ss, _ = REFERENCES[name]
        axes.scatter(
            ss, lms, s=110 if name == "ideal" else 55, marker="*" if name == "ideal" else "X",
            color=INK, zorder=4, clip_on=False, linewidths=0,
        )  # fmt: skip
        axes.annotate(
            name, (ss, lms), xytext=(-9, -8), textcoords="offset points", fontsize=8,
            ha="right", va="center",
        )  # fmt: skip
    series = table.partition_by("model", "run", "condition", maintain_order=True)
    for at, rows in enumerate(series):
        _track(
            axes,
            rows,
            PALETTE[at % len(PALETTE)],
            MARKERS[at // len(PALETTE) % len(MARKERS)],
            first=at == 0,
        )
    axes.set_xlim(50 - reach, 50 + reach)
    axes.set_ylim(low, 101.5)
    axes.set_xlabel("ss, %   (← anti-stereotypes preferred   ·   stereotypes preferred →)")
    axes.set_ylabel(LABELS["lms"])
    handles, texts = axes.get_legend_handles_labels()
    if len(texts) > 1:
        axes.legend(
            handles, texts, loc="lower left", bbox_to_anchor=(0.0, 1.015),
            ncols=2 if max(map(len, texts)) > 24 else 3,
        )  # fmt: skip
    names = [] if len(series) > 1 else [series_name(series[0].row(0, named=True))]
    headline(figure, f"lms against ss, {task_name(table)}", names)
    trained = (table["step"].n_unique() > 1) and any(len(rows) > 1 for rows in series)
    figure.set_label(
        f"{DEFINED} Grey lines: equal iCAT."
        + (" Points are checkpoints, darker later; the last one is large." if trained else "")
        + told_intervals(table, "Bars" + (", of the last checkpoint" if trained else ""))
    )
    return figure


def _contours(axes: "Axes", reach: float, low: float) -> None:
    """Lines of equal iCAT, by tens."""
    x = np.linspace(50 - reach, 50 + reach, 401)
    y = np.linspace(low, 101.5, 301)
    plane = icat(np.minimum(y, 100)[:, None], x[None, :])
    levels = np.arange(10, 100, 10)
    lines = axes.contour(x, y, plane, levels=levels, colors=MUTED, linewidths=0.6, alpha=0.7)
    places = []
    for level in levels:  # on the left where there is room, else near the upper side
        lms = float(min(level / (1 - 0.9 * reach / 50), 97.0))
        ss = level * 50 / lms
        if lms > low + 2 and ss < 48.5:
            places.append((ss, lms))
    axes.clabel(lines, fmt=lambda level: f"{level:.0f}", fontsize=7, manual=places)
    axes.axvline(50, color=MUTED, lw=0.8, ls=(0, (1, 2)))


def _track(axes: "Axes", rows: pl.DataFrame, colour: str, marker: str, *, first: bool) -> None:
    """One series in the order of training: its points, and the intervals of the last."""
    name = shortened(series_name(rows.row(0, named=True)))
    last = rows.row(-1, named=True)
    if len(rows) > 1:
        axes.plot(rows["ss"], rows["lms"], color=colour, lw=0.9, alpha=0.55)
        shade: Any = np.linspace(0.25, 1.0, len(rows))  # Matplotlib takes one for each point
        axes.scatter(
            rows["ss"], rows["lms"], s=14, color=colour, alpha=shade, marker=marker, linewidths=0
        )
        for row in (rows.row(0, named=True), last) if first else (last,):
            step = "release" if row["step"] is None else f"step {short(row['step'])}"
            axes.annotate(
                step, (row["ss"], row["lms"]), xytext=(6, 5), textcoords="offset points",
                fontsize=7.5, color=colour,
            )  # fmt: skip
    for x, y in (
        ([last["ss_low"], last["ss_high"]], [last["lms"]] * 2),
        ([last["ss"]] * 2, [last["lms_low"], last["lms_high"]]),
    ):
        axes.plot(x, y, color=colour, lw=1.2)
    axes.scatter(
        last["ss"],
        last["lms"],
        s=40,
        color=colour,
        marker=marker,
        linewidths=0,
        label=name,
        zorder=3,
    )


def task_name(table: pl.DataFrame) -> str:
    """The task of a figure's table, for people."""
    task = str(table["task"][0])
    return "both tasks" if task == BOTH else task.replace("_", " ")


def shortened(text: str) -> str:
    """A name that fits a legend."""
    return text if len(text) <= 40 else text[:39] + "…"
