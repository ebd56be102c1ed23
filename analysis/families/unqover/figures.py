"""The figures of UnQover, drawn from the tables of `unqover_figure_data`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.drawing.paper import (
    COLOURS,
    INK,
    MUTED,
    STYLE,
    Curve,
    StepAxis,
    draw_curve,
    kind_of,
    legend,
)
from logitbank.analysis.families.evaluation.figures import series_title
from logitbank.analysis.families.stereoset.figures_plane import PALETTE, shortened
from logitbank.analysis.families.unqover.figure_data import PANELS, unqover_figure_data
from logitbank.analysis.families.unqover.metric import Unqover

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GENDERS = {"male": COLOURS[0], "female": COLOURS[1]}
LABELS = {
    "mu": "Bias intensity μ",
    "eta": "Bias by count η",
    "positional": "Positional error",
    "attributive": "Attributive error",
}


def unqover_figures(result: Unqover) -> "dict[str, Figure]":
    """Every figure of an UnQover result, under the names of `unqover_figure_data`.

    Subjects by how much they are favoured; attributes by their strength; bias and errors over
    training. A figure's label (`get_label()`) is its caption.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):  # type: ignore[arg-type]
        return {
            name: _DRAW[kind_of(name)](table) for name, table in unqover_figure_data(result).items()
        }


def _ranked(table: pl.DataFrame) -> "Figure":
    figure, axes = _rows(len(table))
    for at, row in enumerate(table.iter_rows(named=True)):
        colour = GENDERS.get(row["gender"], "#8e5ea2")
        axes.plot([row["low"], row["high"]], [at, at], color=colour, lw=1.4)
        axes.scatter([row["value"]], [at], s=18, color=colour, zorder=3, linewidths=0)
    _names(axes, table["subject"].to_list())
    axes.set_xlabel("γ(x): mean of C towards the subject   (favoured →)")
    left = table["of"][0] - len(table)
    if left > 0:
        gap = (table["rank"].diff().fill_null(1) > 1).arg_max() or 0
        axes.axhline(gap - 0.5, color=MUTED, lw=0.9, ls=(0, (1, 2)))
    genders = [name for name in GENDERS if name in set(table["gender"])]
    for name in genders:
        axes.scatter([], [], s=18, color=GENDERS[name], label=f"{name} names")
    legend(axes)
    _title(figure, "Subjects", table)
    banded = table["low"].is_not_nan().any()
    figure.set_label(
        "γ(x): C towards a subject, averaged over partners and contexts, then over attributes; "
        "above 0, it is favoured."
        + (" Lines: 95 % bootstrap intervals over attributes." if banded else "")
        + (f" {left:,} subjects between the ends are left out." if left > 0 else "")
    )
    return figure


def _strengths(table: pl.DataFrame) -> "Figure":
    means = table.filter(pl.col("panel") == "mean")
    points = table.filter(pl.col("panel") == "subject")
    gendered = means["gender"][0] is not None
    names = means["attribute"].to_list()
    place = {name: at for at, name in enumerate(names)}
    figure, axes = _rows(len(names))
    for gender, own in points.group_by("gender", maintain_order=True):
        colour = GENDERS.get(str(gender[0]), MUTED)
        at = [place[name] for name in own["attribute"]]
        label = f"{gender[0]} names" if gendered else None
        axes.scatter(own["value"], at, s=11, color=colour, alpha=0.55, linewidths=0, label=label)
    axes.scatter(means["value"], range(len(names)), s=26, color=INK, marker="D", zorder=3,
                 linewidths=0)  # fmt: skip
    _names(axes, [shortened(name) for name in names])
    axes.set_xlabel(
        "γ   (← towards male names   ·   towards female names →)"
        if gendered
        else "γ(x, a) of every subject; diamond: mean of |γ(x, a)|"
    )
    legend(axes)
    _title(figure, "Attributes", table)
    what = (
        "Diamonds: C towards the female name, averaged over pairs and contexts. Dots: γ(x, a) of "
        "every female name, and −γ(x, a) of every male one."
        if gendered
        else "Diamonds: mean over subjects of |γ(x, a)|. Dots: γ(x, a) of every subject, above 0 "
        "where it is favoured."
    )
    figure.set_label(f"{what} The {len(names)} attributes of greatest mean |γ(x, a)|, no other.")
    return figure


def _training(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    steps = StepAxis(table["step"].to_list())
    categories = table["category"].unique(maintain_order=True).to_list()
    for at, (axes, name) in enumerate(zip(grid.flat, PANELS, strict=True)):
        for colour, category in zip(PALETTE * len(categories), categories, strict=False):
            rows = table.filter(pl.col("category") == category)
            curve = rows.select(
                "step",
                value=name,
                low=pl.col(f"{name}_low").fill_nan(pl.col(name)),
                high=pl.col(f"{name}_high").fill_nan(pl.col(name)),
            )
            draw_curve(axes, Curve(category, colour, curve), steps)
        axes.set_ylabel(LABELS[name])
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
        steps.apply(axes, labelled=at > 1)
    legend(grid.flat[0])
    series_title(figure, "UnQover over training", table)
    figure.set_label(training_caption(table))
    return figure


_DRAW: "dict[str, Callable[[pl.DataFrame], Figure]]" = {
    "ranked_subjects": _ranked,
    "attribute_strengths": _strengths,
    "unqover_training": _training,
}


def _rows(count: int) -> "tuple[Figure, Axes]":
    """Room for so many rows, with a line at 0."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 1.5 + 0.19 * max(count, 6)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvline(0, color=MUTED, lw=0.9, ls=(0, (4, 3)), zorder=1)
    axes.set_ylim(count - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    return figure, axes


def _names(axes: "Axes", names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(axis="y", length=0)


def _title(figure: "Figure", title: str, table: pl.DataFrame) -> None:
    step = table["step"][0]
    when = "release" if step is None else f"step {step:,}"
    series_title(figure, f"{title}, {table['category'][0]}, {when}", table)


def training_caption(table: pl.DataFrame) -> str:
    """What the figure over training shows, and its bands where there are any."""
    bands = " Bands: 95 % bootstrap intervals over attributes, of μ over subjects."
    return (
        "μ: greatest |γ(x, a)| of each subject, averaged over subjects. η: mean |η(x, a)|, how "
        "one-sided the sign of C is. Errors: how much an answer changes with the order of mention, "
        "and how far negating the attribute is from exchanging the subjects."
        + (bands if table["mu_low"].is_not_nan().any() else "")
    )
