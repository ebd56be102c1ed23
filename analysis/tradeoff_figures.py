"""The figures of a trade-off: both curves over the steps, and one against the other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from logitbank.analysis.figure_axes import (
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PURPLE, CHOSEN = "#8e5ea2", "#e69f00"
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
    bottom.set_ylabel(_first_upper(str(settings["gap"])))
    bottom.set_ylim(bottom=0)
    steps.apply(top, labelled=False)
    steps.apply(bottom)
    handles, labels = top.get_legend_handles_labels()
    top.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.015), ncols=max(len(handles), 1)
    )
    _title(figure, "Performance and fairness", table)
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
    _name_steps(axes, front, table)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.015), ncols=2)
    _title(figure, "What fairness costs", table)
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
    for row in chosen.iter_rows(named=True) if column == "gap" else ():
        axes.annotate(
            short(row["step"]), (steps.place(row["step"]), row[column]), xytext=(-7, 5),
            textcoords="offset points", ha="right", fontsize=8, color=INK,
        )  # fmt: skip


def _name_steps(axes: "Axes", front: pl.DataFrame, table: pl.DataFrame) -> None:
    """Steps beside the points of the front; of many, the first, the last and the chosen ones."""
    rows = front.with_row_index("at")
    if len(front) > 10:
        ends = pl.col("at").is_in([0, len(front) - 1])
        rows = rows.filter(ends | pl.col("chosen_for").is_not_null())
    for row in rows.iter_rows(named=True):
        axes.annotate(
            short(row["step"]), (row["gap"], row["performance"]), xytext=(5, -11),
            textcoords="offset points", fontsize=8, color=INK, annotation_clip=False,
        )  # fmt: skip


def _performance_scale(axes: "Axes", table: pl.DataFrame, settings: Settings) -> None:
    name = _first_upper(str(settings["metric"]))
    if settings["higher_is_better"]:
        axes.set_ylabel(name)
        return
    values = table["performance"]
    if float(str(values.min())) > 0 and float(str(values.max())) > 20 * float(str(values.min())):
        axes.set_yscale("log")
        plain_log(axes.yaxis, values)
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
