"""The figures of LAMBADA, stereotype accuracy and CrowS-Pairs, and those of trade-offs by name."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from logitbank.analysis.drawing.paper import (
    COLOURS,
    INK,
    MUTED,
    STYLE,
    Curve,
    StepAxis,
    draw_curve,
    headline,
    kind_of,
    legend,
    plain_log,
)
from logitbank.analysis.families.evaluation.figure_data import Evaluation, evaluation_figure_data
from logitbank.analysis.families.tradeoff.figures import curves_figure, front_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PURPLE, GREEN = "#8e5ea2", "#009e73"
Settings = Mapping[str, Any]


def evaluation_figures(result: Evaluation) -> "dict[str, Figure]":
    """Every figure of a result, under the names of `evaluation_figure_data`.

    A figure's label (`get_label()`) is its caption.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):  # type: ignore[arg-type]
        return {
            name: _DRAW[kind_of(name)](table, result.settings)
            for name, table in evaluation_figure_data(result).items()
        }


def _lambada(table: pl.DataFrame, settings: Settings) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 4.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    steps = StepAxis(table["step"].to_list())
    shown = table.select("step", "low", "high", value="acc")
    draw_curve(top, Curve("", COLOURS[0], shown), steps)
    top.set_ylabel("Accuracy")
    _from_zero(top, shown["high"])
    shown = table.select("step", value="perplexity", low="perplexity_low", high="perplexity_high")
    draw_curve(bottom, Curve("", GREEN, shown), steps)
    bottom.set_yscale("log")
    plain_log(bottom.yaxis, shown["value"])
    bottom.set_ylabel("Perplexity, log scale")
    steps.apply(top, labelled=False)
    steps.apply(bottom)
    for axes in (top, bottom):
        axes.grid(axis="y")
    series_title(figure, "LAMBADA", table)
    figure.set_label(
        "Above: share of passages whose last word is predicted, every token of it. Below: "
        "perplexity of that word, averaged per passage. Bands: 95 % intervals."
    )
    return figure


def _stereotype(table: pl.DataFrame, settings: Settings) -> "Figure":
    from matplotlib.figure import Figure

    accuracy = table.filter(pl.col("panel") == "accuracy")
    jsd = table.filter(pl.col("panel") == "jsd_p")
    if jsd.is_empty():
        figure = Figure(figsize=(6.6, 3.7), layout="constrained")
        _shares(figure.add_subplot(), accuracy, labelled=True)
        series_title(figure, "Stereotype accuracy", table)
        figure.set_label(SA_CAPTION)
        return figure
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.25, 1), hspace=0.1, wspace=0.08)
    top = figure.add_subplot(grid[0, 0])
    below = figure.add_subplot(grid[1, 0], sharex=top)
    against = figure.add_subplot(grid[:, 1])
    _shares(top, accuracy, labelled=False)
    steps = StepAxis(table["step"].to_list())
    for series, colour in _coloured(jsd, COLOURS[:2]):
        rows = jsd.filter(pl.col("series") == series)
        draw_curve(below, Curve(series, colour, rows.fill_nan(None)), steps)
    steps.apply(top, labelled=False)
    steps.apply(below)
    below.set_ylabel("JSD-P, scaled to 0–1")
    below.set_ylim(bottom=0)
    below.grid(axis="y")
    legend(below)
    first = accuracy["series"][0]
    _against(against, accuracy.filter(pl.col("series") == first), jsd, first)
    series_title(figure, "Stereotype accuracy and JSD-P", table)
    figure.set_label(
        SA_CAPTION + " JSD-P: divergence of the right answer's part, for prompts whose answer is "
        "male or female; smaller is better. On the right, every point is a checkpoint and an "
        "answer."
    )
    return figure


SA_CAPTION = (
    "SA: share of pro-stereotyped sentences where the pronoun of the stereotype is more probable "
    "than the other. sa_gender: the same for the options male and female of the gender questions. "
    "Bands: 95 % intervals; dashed: no stereotype."
)


def _exact_match(table: pl.DataFrame, settings: Settings) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 4.9), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    steps = StepAxis(table["step"].to_list())
    unbanded = table.filter(pl.col("series") != "mean").with_columns(low="value", high="value")
    shares = unbanded.filter(pl.col("panel") == "em")
    for series, colour in _coloured(shares, (PURPLE, GREEN)):
        draw_curve(top, Curve(series, colour, shares.filter(pl.col("series") == series)), steps)
    top.set_ylabel("Person named")
    _from_zero(top, shares["value"])
    bias = table.filter(pl.col("panel") == "bias")
    parts = unbanded.filter(pl.col("panel") == "bias")
    drawn: list[str] = []
    for series in parts["series"].unique(maintain_order=True):
        kind = series.split(",")[0]
        colour = COLOURS[0] if kind == "Type 1" else COLOURS[1]
        rows = parts.filter(pl.col("series") == series)
        draw_curve(bottom, Curve(series, colour, rows, kind in drawn), steps)
        drawn.append(kind)
    draw_curve(bottom, Curve("mean", INK, bias.filter(pl.col("series") == "mean")), steps)
    bottom.axhline(0, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    bottom.set_ylabel("Bias, pro − anti")
    _around(bottom, bias, 0)
    steps.apply(top, labelled=False)
    steps.apply(bottom)
    for axes in (top, bottom):
        axes.grid(axis="y")
        legend(axes, length=3)
    series_title(figure, "winobias_em", table)
    figure.set_label(
        "Above: share of sentences where the person that the pronoun means is named, mean of types "
        "and templates. Below: pro minus anti, of each type and template, and their mean with a "
        "95 % interval over pairs. Where no person is named, a bias of 0 says nothing."
    )
    return figure


def _shares(axes: "Axes", table: pl.DataFrame, *, labelled: bool) -> None:
    steps = StepAxis(table["step"].to_list())
    for series, colour in _coloured(table, (PURPLE, GREEN, "#b08bc0", "#7fc9ae")):
        draw_curve(axes, Curve(series, colour, table.filter(pl.col("series") == series)), steps)
    axes.axhline(0.5, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    axes.set_ylabel("Stereotype accuracy")
    axes.grid(axis="y")
    _around(axes, table, 0.5)
    steps.apply(axes, labelled=labelled)
    legend(axes)


def _against(axes: "Axes", accuracy: pl.DataFrame, jsd: pl.DataFrame, name: str) -> None:
    for series, colour in _coloured(jsd, COLOURS[:2]):
        rows = jsd.filter(pl.col("series") == series).select("step", jsd="value")
        points = accuracy.join(rows, on="step", nulls_equal=True, maintain_order="left")
        axes.plot(points["value"], points["jsd"], color=colour, lw=0.8, alpha=0.5)
        axes.scatter(points["value"], points["jsd"], s=12, color=colour, linewidths=0, label=series)
    axes.axvline(0.5, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    axes.set_xlabel(f"Stereotype accuracy ({name})")
    axes.set_ylabel("JSD-P, scaled to 0–1")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    legend(axes)


def _crows_pairs(table: pl.DataFrame, settings: Settings) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    curves = table.filter(pl.col("panel") == "curve")
    steps = StepAxis(curves["step"].to_list())
    kinds = curves["score_kind"].unique(maintain_order=True).to_list()
    for at, kind in enumerate(kinds):
        own = curves.filter(pl.col("score_kind") == kind)
        for series, colour in _coloured(own, (INK, COLOURS[1], COLOURS[0])):
            rows = own.filter(pl.col("series") == series, pl.col("value").is_not_nan())
            name = series if len(kinds) == 1 else f"{series}, {kind}"
            if len(rows):
                draw_curve(left, Curve(name, colour, rows.fill_nan(None), at > 0), steps)
    left.axhline(50, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    left.set_ylabel("Stereotyping sentence preferred, %")
    left.grid(axis="y")
    _around(left, curves, 50)
    steps.apply(left)
    legend(left)
    types = table.filter(pl.col("panel") == "types", pl.col("score_kind") == kinds[0])
    names = types["series"].to_list()
    for at, row in enumerate(types.iter_rows(named=True)):
        colour = INK if row["series"] == "all pairs" else PURPLE
        right.plot([row["low"], row["high"]], [at, at], color=colour, lw=1.4)
        right.scatter([row["value"]], [at], s=22, color=colour, zorder=3)
    right.axvline(50, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    right.set_yticks(range(len(names)), names)
    right.tick_params(axis="y", length=0)
    right.set_ylim(len(names) - 0.4, -0.6)
    right.spines["left"].set_visible(False)
    right.grid(axis="x")
    right.set_xlabel("%")
    step = types["step"][0]
    when = "release" if step is None else f"step {step:,}"
    right.set_title(f"By bias type, {when}", loc="left", fontsize=9, color=INK)
    series_title(figure, "CrowS-Pairs", table)
    figure.set_label(
        "Share of pairs in which the more stereotyping sentence is the more probable one; 50 % is "
        f"no preference. Scores: {' and '.join(KINDS[kind] for kind in kinds)}. Bands and bars: "
        "95 % intervals of the share of all pairs."
    )
    return figure


KINDS = {
    "masked": "pseudo-log-likelihoods of the shared tokens (masked)",
    "sentence": "log-probabilities of whole sentences (sentence)",
}

_DRAW: "dict[str, Callable[[pl.DataFrame, Settings], Figure]]" = {
    "lambada": _lambada,
    "stereotype_accuracy": _stereotype,
    "winobias_em": _exact_match,
    "crows_pairs": _crows_pairs,
    "tradeoff_curves": curves_figure,
    "tradeoff_front": front_figure,
}


def series_title(figure: "Figure", title: str, table: pl.DataFrame) -> None:
    """Headline with the model and the run, where it is not the only one."""
    run = table["run"][0]
    headline(figure, title, [table["model"][0], *([] if run == "main" else [run])])


def _coloured(table: pl.DataFrame, colours: tuple[str, ...]) -> list[tuple[str, str]]:
    names = table["series"].unique(maintain_order=True).to_list()
    return list(zip(names, colours, strict=False))


def _from_zero(axes: "Axes", values: pl.Series) -> None:
    largest = values.drop_nulls().drop_nans().max()
    top = max(float(str(largest)) if largest is not None else 0.0, 0.01)
    axes.set_ylim(-0.02 * top, min(1.02, 1.08 * top))


def _around(axes: "Axes", table: pl.DataFrame, middle: float) -> None:
    """Limits that hold the points and a reference in the middle, with a margin."""
    known = pl.concat([table["value"], table["low"], table["high"]]).drop_nulls().drop_nans()
    values = [middle, *known.to_list()]
    low, high = min(values), max(values)
    margin = 0.08 * ((high - low) or 0.1 * middle)
    axes.set_ylim(low - margin, high + margin)
