"""The figures of fairness, drawn from the tables of `figure_data`.

Matplotlib's object interface: no window system and no global state is involved.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.drawing.paper import (
    COLOURS,
    INK,
    MUTED,
    STYLE,
    Curve,
    Marks,
    StepAxis,
    draw_curve,
    headline,
    kind_of,
    legend,
    plain_log,
    with_panel,
)
from logitbank.analysis.drawing.static_data import figure_data
from logitbank.analysis.families.evaluation.figure_data import Evaluation
from logitbank.analysis.families.evaluation.figures import evaluation_figures
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.families.fluctuation.figures import fluctuation_figures
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.families.stereoset.figures import stereoset_figures
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.unqover.figures import unqover_figures
from logitbank.analysis.families.unqover.metric import Unqover
from logitbank.analysis.stats.significance import SIGNIFICANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEST_LABELS = {
    "mann_whitney_p": "Mann–Whitney",
    "mann_whitney_p_bh": "adjusted (BH)",
    "wilcoxon_p": "Wilcoxon pairs",
}

BANDS = "Bands, where there are several order seeds: ± 1 SD between them."
MARKS = (
    f"Filled marks: male against female, p < {SIGNIFICANCE}; the adjustment and the pairs are "
    "ours, beside the published Mann–Whitney test."
)


def figures(
    result: Fairness | Fluctuation | StereoSet | Unqover | Evaluation,
) -> "dict[str, Figure]":
    """Every figure of a result, under the names of `figure_data`.

    `fluctuation_figures`, `stereoset_figures`, `unqover_figures` and `evaluation_figures` tell of
    theirs. Those of fairness: JSD-P and Average Rank per correct answer, gendered options on
    neutral prompts, Average Rank against accuracy, and the gap with its onset. Filled marks beneath
    a figure are tests with p < 0.01. A figure's label (`get_label()`) is its caption.
    """
    from matplotlib import rc_context

    if isinstance(result, Fluctuation):
        return fluctuation_figures(result)
    if isinstance(result, StereoSet):
        return stereoset_figures(result)
    if isinstance(result, Unqover):
        return unqover_figures(result)
    if isinstance(result, Evaluation):
        return evaluation_figures(result)
    with rc_context(STYLE):  # type: ignore[arg-type]
        return {
            name: _DRAW[kind_of(name)](table, result.labels)
            for name, table in figure_data(result).items()
        }


def _jsd_p(table: pl.DataFrame, labels: FairnessLabels) -> "Figure":
    figure, top = with_panel(
        table, curves=_by_group(table, "gold", labels), marks=_gender_marks(table)
    )
    top.set_ylabel("JSD-P, scaled to 0–1")
    top.set_ylim(bottom=0)
    _title(figure, "JSD-P per correct answer", table)
    figure.set_label(
        "The right option's part of the divergence between prediction and right answer, for "
        f"prompts whose answer is {labels.male} or {labels.female}; smaller is better. {BANDS} "
        f"{MARKS}"
    )
    return figure


def _average_rank(table: pl.DataFrame, labels: FairnessLabels) -> "Figure":
    figure, top = with_panel(
        table, curves=_by_group(table, "gold", labels), marks=_gender_marks(table)
    )
    _rank_scale(top, table["value"])
    _title(figure, "Average Rank per correct answer", table)
    figure.set_label(
        "Rank of the right answer's token in the vocabulary, mean over prompts; 1 is best. "
        f"{BANDS} {MARKS}"
    )
    return figure


def _neutral_options(table: pl.DataFrame, labels: FairnessLabels) -> "Figure":
    models = table["model"].unique(maintain_order=True).to_list()
    curves = [
        curve._replace(label=f"{curve.label}, {model}" if len(models) > 1 else curve.label)
        for index, model in enumerate(models)
        for curve in _by_group(
            table.filter(pl.col("model") == model), "option", labels, dashed=index > 0
        )
    ]
    tested = table.filter((pl.col("model") == models[0]) & pl.col("mann_whitney_p").is_not_null())
    marks = [
        Marks(f"{label} option", colour, rows["step"].to_list(), rows["mann_whitney_p"].to_list())
        for label, colour in zip(labels[:2], COLOURS, strict=False)
        if len(rows := tested.filter(pl.col("option") == label))
    ]
    figure, top = with_panel(table, curves=curves, marks=marks)
    top.set_ylabel("JSD-P, scaled to 0–1")
    top.set_ylim(bottom=0)
    _title(figure, "Gendered options on neutral prompts", table)
    figure.set_label(
        f"JSD-P of the {labels.male} and the {labels.female} option where the answer is "
        f"“{labels.neutral}”: the probability that each takes away. {BANDS}"
        + (" Filled marks: the two models differ, Mann–Whitney p < 0.01." if marks else "")
    )
    return figure


def _rank_and_accuracy(table: pl.DataFrame, labels: FairnessLabels) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1), hspace=0.06, wspace=0.08)
    rank = figure.add_subplot(grid[0, 0])
    hits = figure.add_subplot(grid[1, 0], sharex=rank)
    against = figure.add_subplot(grid[:, 1])
    steps = StepAxis(table["step"].to_list())
    for label, colour in zip(labels, COLOURS, strict=True):
        rows = table.filter(pl.col("gold") == label)
        if rows["average_rank"].is_nan().all():
            continue
        for axes, column in ((rank, "average_rank"), (hits, "accuracy")):
            curve = rows.select("step", value=column, low=column, high=column)
            draw_curve(axes, Curve(label, colour, curve), steps)
        against.plot(rows["average_rank"], rows["accuracy"], color=colour, lw=0.8, alpha=0.5)
        against.scatter(rows["average_rank"], rows["accuracy"], s=9, color=colour, linewidths=0)
    _rank_scale(rank, table["average_rank"])
    hits.set_ylabel("Accuracy")
    _unit_interval(hits, table["accuracy"])
    steps.apply(rank, labelled=False)
    steps.apply(hits)
    against.set_xscale("log")
    plain_log(against.xaxis, table["average_rank"])
    against.set_xlabel("Average Rank, log scale (1 is best)")
    against.set_ylabel("Accuracy")
    _unit_interval(against, table["accuracy"])
    for axes in (rank, hits, against):
        axes.grid(axis="y")
    legend(rank)
    _title(figure, "Average Rank against accuracy", table)
    figure.set_label(
        "Accuracy: the right answer's token is the only maximum of the whole vocabulary. "
        "On the right, every point is a checkpoint and an answer."
    )
    return figure


def _gap(table: pl.DataFrame, labels: FairnessLabels) -> "Figure":
    figure, top = with_panel(table, curves=[Curve("", "#8e5ea2", table)], marks=[])
    top.axhline(0, color=MUTED, lw=0.9, zorder=1)
    top.set_ylabel("Gap Δ, JSD-P scaled")
    _mark_onset(top, *(table[name][0] for name in ("onset_step", "earliest", "latest")))
    low, high = top.get_ylim()
    top.set_ylim(min(low, -0.12 * (high - low)), max(high, 0.12 * (high - low)))
    for y, text, colour in (
        (1.0, f"worse for {labels.female} →", COLOURS[1]),
        (0.0, f"← worse for {labels.male}", COLOURS[0]),
    ):
        top.text(
            *(1.015, y, text),
            transform=top.transAxes,
            rotation=90,
            va="top" if y else "bottom",
            fontsize=8,
            color=colour,
        )
    _title(figure, "Gap between genders", table)
    figure.set_label(
        f"JSD-P of {labels.female} answers minus JSD-P of {labels.male} answers. "
        "Band: 95 % bootstrap interval over sentences. Dashed: where its level changes, if that "
        "can be told from wandering."
    )
    return figure


_DRAW: "dict[str, Callable[[pl.DataFrame, FairnessLabels], Figure]]" = {
    "jsd_p": _jsd_p,
    "average_rank": _average_rank,
    "neutral_options": _neutral_options,
    "rank_and_accuracy": _rank_and_accuracy,
    "gap": _gap,
}


def _by_group(
    table: pl.DataFrame, column: str, labels: FairnessLabels, *, dashed: bool = False
) -> list[Curve]:
    return [
        Curve(label, colour, rows, dashed)
        for label, colour in zip(labels, COLOURS, strict=True)
        if len(rows := table.filter(pl.col(column) == label)) and not rows["value"].is_nan().all()
    ]


def _gender_marks(table: pl.DataFrame) -> list[Marks]:
    rows = table.unique("step", maintain_order=True)
    steps = rows["step"].to_list()
    return [
        Marks(label, INK, steps, rows[column].to_list()) for column, label in TEST_LABELS.items()
    ]


def _rank_scale(axes: "Axes", ranks: pl.Series) -> None:
    axes.set_yscale("log")
    axes.set_ylabel("Average Rank (1 is best)")
    plain_log(axes.yaxis, ranks)


def _unit_interval(axes: "Axes", values: pl.Series) -> None:
    """Limits that show zero, and a whole share where all values are tiny."""
    largest = values.drop_nulls().drop_nans().max()
    top = largest if isinstance(largest, float) and largest > 0.01 else 0.01
    axes.set_ylim(-0.02 * top, min(1.02, 1.08 * top))


def _mark_onset(axes: "Axes", step: int | None, earliest: int, latest: int) -> None:
    """A line where the level changes, between the steps where it may."""
    if step is None:
        return
    axes.axvspan(earliest, latest, color=MUTED, alpha=0.15, lw=0, zorder=0)
    axes.axvline(step, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    at = axes.transAxes.inverted().transform(axes.transData.transform((step, 0)))[0]
    axes.annotate(
        f"another level from step {step:,}",
        (step, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="left" if at < 0.25 else "right" if at > 0.75 else "center",
        fontsize=8,
        annotation_clip=False,
    )


def _title(figure: "Figure", title: str, table: pl.DataFrame) -> None:
    models = table["model"].unique(maintain_order=True).to_list()
    run = table["run"][0]
    # The legend names two models; a title holds one, shortened to the width of the figure.
    where = [*models[: len(models) == 1], *([] if run == "main" else [run])]
    headline(figure, title, where)
