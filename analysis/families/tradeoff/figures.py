"""The figures of a trade-off: both curves over the steps, and one against the other."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import (
    COLOURS,
    INK,
    MUTED,
    Curve,
    StepAxis,
    draw_curve,
    headline,
    plain_log,
    short,
)
from logitbank.analysis.frames.expressions import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PURPLE, CHOSEN = "#8e5ea2", "#e69f00"
LABEL_SIZE = 8
Settings = Mapping[str, Any]


def curves_figure(table: pl.DataFrame, settings: Settings) -> "Figure":
    """Performance above the gap, over the same steps; front and choice marked in both."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 5.0), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    steps = StepAxis(table["step"].to_list())
    for axes, column, colour in ((top, "performance", COLOURS[0]), (bottom, "gap", PURPLE)):
        rows = table.select("step", value=column, low=f"{column}_low", high=f"{column}_high")
        draw_curve(axes, Curve("", colour, rows.fill_nan(None)), steps)
        _mark(axes, table, column, steps)
        axes.grid(axis="y")
    _performance_scale(top, table, settings)
    bottom.set_ylabel(fill(_first_upper(str(settings["gap"])), 28))
    bottom.set_ylim(bottom=-0.03 * bottom.get_ylim()[1])
    steps.apply(top, labelled=False)
    steps.apply(bottom)
    handles, labels = top.get_legend_handles_labels()
    top.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.015), ncols=max(len(handles), 1)
    )
    _title(figure, "Performance and fairness", table)
    _name_steps(bottom, table, [steps.place(step) for step in table["step"]], pl.lit(False))
    figure.set_label(
        f"Above {settings['metric']}, below {settings['gap']}; smaller is fairer. Ringed: on the "
        "Pareto front, so that no other checkpoint is better in one without being worse in the "
        f"other.{_choice(table, settings)}{_bands(table)}"
    )
    return figure


def front_figure(table: pl.DataFrame, settings: Settings) -> "Figure":
    """Performance against the gap, a point a checkpoint, with the Pareto front."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(table["gap"], table["performance"], color=MUTED, lw=0.8, alpha=0.6, zorder=1)
    axes.scatter(table["gap"], table["performance"], s=14, color=MUTED, linewidths=0, zorder=2)
    front = table.filter("on_front").sort("gap")
    axes.step(front["gap"], front["performance"], where="post", color=COLOURS[0], lw=1.6, zorder=3)
    axes.errorbar(
        front["gap"], front["performance"],
        xerr=_reach(front, "gap"), yerr=_reach(front, "performance"),
        fmt="none", ecolor=COLOURS[0], elinewidth=0.7, alpha=0.45, zorder=2.5,
    )  # fmt: skip
    axes.scatter(
        front["gap"], front["performance"],
        s=26, color=COLOURS[0], linewidths=0, zorder=4, label="Pareto front",
    )  # fmt: skip
    chosen = table.filter(pl.col("chosen_for").is_not_null())
    axes.scatter(
        chosen["gap"], chosen["performance"],
        s=95, marker="*", color=CHOSEN, edgecolors=INK, linewidths=0.6, zorder=5,
        label=_chosen_label(chosen, settings),
    )  # fmt: skip
    _performance_scale(axes, table, settings)
    axes.set_xlabel(f"{_first_upper(str(settings['gap']))} (smaller is fairer)")
    axes.set_xlim(left=min(0.0, -0.02 * float(str(table["gap"].max()))))
    axes.grid()
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.015), ncols=2)
    _title(figure, "What fairness costs", table)
    # Of many points on the front, the ends and the chosen ones.
    ends = front["step"].to_list() if len(front) <= 10 else [front["step"][0], front["step"][-1]]
    _name_steps(axes, table, table["gap"].to_list(), pl.col("step").is_in(ends), "performance")
    figure.set_label(
        f"Every point is a checkpoint, joined in the order of training: {settings['metric']} "
        f"against {settings['gap']}. The line is the Pareto front, with the steps on it."
        f"{_choice(table, settings)}" + (" Thin bars: 95 % intervals." if _has_bands(table) else "")
    )
    return figure


def _mark(axes: "Axes", table: pl.DataFrame, column: str, steps: StepAxis) -> None:
    front = table.filter("on_front")
    axes.scatter(
        [steps.place(step) for step in front["step"]],
        front[column],
        s=42, facecolors="none", edgecolors=INK, linewidths=0.9, zorder=3, label="Pareto front",
    )  # fmt: skip
    chosen = table.filter(pl.col("chosen_for").is_not_null())
    if len(chosen):
        axes.scatter(
            [steps.place(step) for step in chosen["step"]],
            chosen[column],
            s=95, marker="*", color=CHOSEN, edgecolors=INK, linewidths=0.6, zorder=4,
            label="fairest at a bounded loss",
        )  # fmt: skip


def _name_steps(
    axes: "Axes", table: pl.DataFrame, x: Sequence[float], named: pl.Expr, y: str = "gap"
) -> None:
    """Steps beside the chosen points and those that are `named`, off each other and the curve."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # places follow from the layout
    scale = 72 / axes.figure.dpi  # to points, in which texts have their size
    points = axes.transData.transform(np.column_stack([x, table[y]])) * scale
    marked = table["on_front"] | table["chosen_for"].is_not_null()
    left, low = axes.bbox.x0 * scale, axes.bbox.y0 * scale
    taken = [(-np.inf, -np.inf, np.inf, low), (-np.inf, -np.inf, left, np.inf)]
    for places, reach in ((points[marked.to_numpy()], 4), (_along(points), 1)):
        taken += [(u - reach, v - reach, u + reach, v + reach) for u, v in places]
    wanted = table.with_row_index("at").filter(pl.col("chosen_for").is_not_null() | named)
    for at, step in wanted.sort("chosen_for", nulls_last=True).select("at", "step").iter_rows():
        text, (u, v) = short(step), points[at]
        wide = LABEL_SIZE * 0.6 * len(text)
        boxes = [
            (u + dx, v + dy, u + dx + wide, v + dy + LABEL_SIZE)
            for far in (4, 14, 24, 34)
            for dx in (5, -5 - wide)
            for dy in (-far - LABEL_SIZE, far)
        ]
        box = min(boxes, key=lambda one: sum(_overlap(one, other) for other in taken))
        taken.append(box)
        axes.annotate(
            text, (x[at], table[y][at]), xytext=(box[0] - u, box[1] - v), color=INK,
            textcoords="offset points", fontsize=LABEL_SIZE, annotation_clip=False,
        )  # fmt: skip


def _along(points: Floats) -> Floats:
    """Places every 3 points of length on the lines that join points."""
    lengths = np.hypot(*np.diff(points, axis=0).T)
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    places = np.arange(0, ends[-1], 3)
    return np.column_stack([np.interp(places, ends, points[:, i]) for i in (0, 1)])


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether two boxes do: left, lower, right, upper."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _performance_scale(axes: "Axes", table: pl.DataFrame, settings: Settings) -> None:
    name = _first_upper(str(settings["metric"]))
    if settings["higher_is_better"]:
        axes.set_ylabel(name)
        low, high = axes.get_ylim()
        if settings["unit"] == "points" and low < 0:  # no share is below 0
            axes.set_ylim(-0.03 * high, high)
        return
    values = table["performance"]
    if float(str(values.min())) > 0 and float(str(values.max())) > 20 * float(str(values.min())):
        axes.set_yscale("log")
        plain_log(axes.yaxis, values)
    else:  # else a power of ten is written over the legend
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
    axes.invert_yaxis()
    axes.set_ylabel(f"{name}, axis turned")


def _reach(table: pl.DataFrame, column: str) -> list[list[float]]:
    """Lengths of the error bars; none where there is no interval, or it lies beside its value."""
    lengths = (
        (pl.col(column) - pl.col(f"{column}_low")),
        (pl.col(f"{column}_high") - pl.col(column)),
    )
    return [
        table.select(length.fill_nan(0).clip(lower_bound=0)).to_series().to_list()
        for length in lengths
    ]


def _has_bands(table: pl.DataFrame) -> bool:
    return bool((table["performance_low"].is_not_nan() | table["gap_low"].is_not_nan()).any())


def _bands(table: pl.DataFrame) -> str:
    return " Bands: 95 % intervals." if _has_bands(table) else ""


def _allowed(settings: Settings) -> str:
    given = settings["give_up"]
    if settings["unit"] != "points":
        return f"{given:g}"
    return "1, 2 or 5 points" if given is None else f"{given:g} point{'' if given == 1 else 's'}"


def _chosen_label(chosen: pl.DataFrame, settings: Settings) -> str:
    return f"fairest, giving up at most {_allowed(settings)}" if len(chosen) else "_nolegend_"


def _choice(table: pl.DataFrame, settings: Settings) -> str:
    if table["chosen_for"].null_count() == len(table):
        return ""
    return (
        f" Stars: the smallest gap among checkpoints that lose at most {_allowed(settings)} "
        "against the best."
    )


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _title(figure: "Figure", title: str, table: pl.DataFrame) -> None:
    run = table["run"][0]
    headline(figure, title, [table["model"][0], *([] if run == "main" else [run])])
