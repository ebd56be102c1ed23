"""The figures of fluctuation, drawn from the tables of `fluctuation_figure_data`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.drawing.paper import (
    COLOURS,
    INK,
    MUTED,
    STYLE,
    headline,
    kind_of,
    legend,
    short,
    signed,
)
from logitbank.analysis.families.fluctuation.figure_data import fluctuation_figure_data
from logitbank.analysis.families.fluctuation.figures_heat import (
    checkpoint_heat_map,
    run_heat_map,
    series_headline,
)
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.families.fluctuation.scores import PRONOUNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

R_COLOUR, N_COLOUR = "#0072b2", "#009e73"
CASE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a8f98")
FADED = 0.35
ROLES = {
    "prior": "the prior",
    "largest cv_r": "largest CV of R",
    "smallest cv_r": "smallest CV of R",
    "chosen": "",
}


def fluctuation_figures(result: Fluctuation) -> "dict[str, Figure]":
    """Every figure of a fluctuation result, under the names of `fluctuation_figure_data`.

    Trajectories of both pronouns, certainty against CV with marginal histograms, correlations of
    checkpoints and of runs, and sorted corpus frequencies. A figure's label (`get_label()`) is its
    caption.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):  # type: ignore[arg-type]
        return {
            name: _DRAW[kind_of(name)](table)
            for name, table in fluctuation_figure_data(result).items()
        }


def _trajectories(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    panels = table.partition_by("role", "occupation", maintain_order=True)
    columns = 2 if len(panels) in (2, 4) else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.1 + 2.2 * columns, 0.9 + 2.1 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    start = int(table["first_step"][0])
    for panel, place in zip(panels, axes.flat, strict=False):
        _trajectory(place, panel, start)
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    largest = table["relative"].drop_nans().max()
    axes[0, 0].set_ylim(-0.03, 1.06 * max(float(str(largest)) if largest else 1.0, 1.0))
    for place in axes[:, 0]:
        place.set_ylabel("Score / its maximum")
    for place in axes.flat[: len(panels)][-columns:]:
        place.set_xlabel("Training step")
        place.tick_params(labelbottom=True)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", bbox_to_anchor=(0.99, 0.985), ncols=2)
    series_headline(figure, "Pronoun scores over training", table)
    extremes = table["role"].is_in(["largest cv_r", "smallest cv_r"]).any()
    figure.set_label(
        "Probability of each pronoun at the mask, divided by its own largest over the training "
        f"steps. The plateau starts at step {start:,} (dashed line); steps before it are faded."
        + (" Shown are the professions of largest and of smallest CV of R." if extremes else "")
        + (" Diamonds: the public release." if table["step"].null_count() else "")
    )
    return figure


def _trajectory(axes: "Axes", table: pl.DataFrame, start: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    role, occupation = table["role"][0], table["occupation"][0]
    trained = table.filter(pl.col("step").is_not_null())
    steps = trained["step"].unique().sort().to_list()
    beyond = steps[-1] + 0.07 * (steps[-1] - steps[0] or 1)
    for pronoun, colour in zip(PRONOUNS, COLOURS, strict=False):
        rows = trained.filter(pl.col("pronoun") == pronoun).sort("step")
        before = rows.filter(pl.col("step") <= start)
        after = rows.filter(pl.col("step") >= start)
        axes.plot(before["step"], before["relative"], color=colour, alpha=FADED, lw=1.3)
        axes.plot(after["step"], after["relative"], color=colour, label=pronoun, marker="o", ms=2.2)
        release = table.filter(pl.col("step").is_null() & (pl.col("pronoun") == pronoun))
        axes.scatter([beyond] * len(release), release["relative"], s=22, marker="D", color=colour)
    axes.axvline(start, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    name = occupation if len(occupation) <= 30 else occupation[:29] + "…"
    about = ROLES[role]
    axes.set_title(
        f"{name}\n{about}" if about else name, loc="left", fontsize=8.5, color=INK, pad=5
    )


def _certainty_cv(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.3), layout="constrained")
    outer = figure.add_gridspec(1, 2, wspace=0.08)
    x, y = _limits(table["certainty"]), _limits(table["cv"])
    for at, (measure, colour) in enumerate((("R", R_COLOUR), ("N", N_COLOUR))):
        rows = table.filter(pl.col("measure") == measure)
        points, prior = rows.filter(~pl.col("prior")), rows.filter("prior")
        inner = outer[at].subgridspec(
            2, 2, width_ratios=(5, 1), height_ratios=(1, 5), hspace=0.03, wspace=0.03
        )
        main = figure.add_subplot(inner[1, 0])
        above = figure.add_subplot(inner[0, 0], sharex=main)
        beside = figure.add_subplot(inner[1, 1], sharey=main)
        main.scatter(points["certainty"], points["cv"], s=9, alpha=0.45, color=colour, linewidths=0)
        main.scatter(
            *(prior["certainty"], prior["cv"]),
            s=70, marker="x", color=INK, linewidths=2, label="prior", zorder=3,
        )  # fmt: skip
        bins = 30
        above.hist(points["certainty"], bins=bins, range=x, color=colour, alpha=0.6)
        beside.hist(
            points["cv"], bins=bins, range=y, color=colour, alpha=0.6, orientation="horizontal"
        )
        for margin in (above, beside):
            margin.set_axis_off()
        main.set_xlim(x)
        main.set_ylim(y)
        main.grid()
        main.set_xlabel("Mean certainty C")
        main.set_ylabel(f"CV of {measure}")
        r = rows["r"][0]
        told = f"r = {signed(r)}" if r is not None and r == r else "r undefined"
        above.set_title(
            f"{measure}: {told}, {len(points):,} professions",
            loc="left", fontsize=9, color=INK,
        )  # fmt: skip
        main.legend(loc="upper right", handletextpad=0.2)
    series_headline(figure, "Certainty and fluctuation", table, plateau=True)
    figure.set_label(
        "Every point is a profession: mean P(he) + P(she) over the plateau, against the "
        "coefficient of variation of R = P(he) / P(she), and of N, which is R divided by the "
        "prior's. × is the prior with the CV of its own R, in both panels. Margins: how many "
        "professions."
    )
    return figure


def _frequencies(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for at, rows in enumerate(table.partition_by("case", maintain_order=True)):
        colour = CASE_COLOURS[at % len(CASE_COLOURS)]
        some = rows.filter(pl.col("frequency") > 0)
        lacking = len(rows) - len(some)
        label = rows["case"][0] + (f" ({lacking:,} never)" if lacking else "")
        axes.plot(some["rank"], some["frequency"], color=colour, label=label)
        for row in some.head(1).iter_rows(named=True):
            axes.annotate(
                row["occupation"], (row["rank"], row["frequency"]), xytext=(8, 2 - 12 * at),
                textcoords="offset points", fontsize=8, color=colour, va="center",
            )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlim(left=-0.01 * table["rank"].len())
    axes.set_xlabel("Professions, the most frequent first")
    axes.set_ylabel("Corpus frequency, log scale")
    axes.grid(axis="y")
    legend(axes)
    headline(figure, "Corpus frequency of professions", [])
    figure.set_label(
        "Professions sorted by their frequency in the corpus, in each letter case; the most "
        "frequent one is named. Those that never occur have no place on a log scale and are "
        "counted in the legend."
    )
    return figure


_DRAW: "dict[str, Callable[[pl.DataFrame], Figure]]" = {
    "trajectories": _trajectories,
    "certainty_cv": _certainty_cv,
    "checkpoint_pairs": checkpoint_heat_map,
    "run_pairs": run_heat_map,
    "frequencies": _frequencies,
}


def _limits(values: pl.Series) -> tuple[float, float]:
    """From a little below the least, or 0 where that is near, to a little above the largest."""
    low, high = float(str(values.min())), float(str(values.max()))
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return (-0.02 * high if 0 <= low < 0.25 * high else low - margin), high + margin
