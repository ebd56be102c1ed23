"""The figures of debiasing: the comparison, and bias against language modelling."""

from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.drawing.names import named_tables
from logitbank.analysis.drawing.paper import COLOURS, INK, MUTED, STYLE, headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"none": MUTED, "untrained": COLOURS[1], "trained": COLOURS[0]}
_PANELS = (
    ("icat", "iCAT", (100.0, 50.0)),
    ("lms", "lms", (100.0, 50.0)),
    ("ss", "ss", (50.0,)),
    ("abs_c", "UnQover, mean |C|", (0.0,)),
)


def comparison_figures(table: pl.DataFrame) -> "dict[str, Figure]":
    """One figure for each model and step of `DebiasComparison.comparison`."""
    from matplotlib import rc_context

    with rc_context(STYLE):  # type: ignore[arg-type]
        rows, keys = table.filter(pl.col("label") != "reference"), ["model", "run", "step"]
        parts = rows.partition_by(keys, maintain_order=True)
        named = named_tables({"comparison": ((keys, part) for part in parts)})
        return {name: _comparison(part) for name, part in named.items()}


def _comparison(rows: pl.DataFrame) -> "Figure":
    """A row for each filter, prefix and language; a panel for each measure that there is."""
    from matplotlib.figure import Figure

    panels = [p for p in _PANELS if rows[p[0]].null_count() < len(rows)]
    figure = Figure(figsize=(2.0 + 1.7 * len(panels), 1.3 + 0.28 * len(rows)), layout="constrained")
    for at, (name, title, lines) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), at + 1)
        _dots(axes, rows, name, lines)
        axes.set_title(title, fontsize=9)
        axes.set_yticks(range(len(rows)), _labels(rows) if at == 0 else [""] * len(rows))
    headline(figure, "Debiasing", [rows["model"][0]])
    figure.set_label(
        "StereoSet's intra-sentence scores with 95 % intervals, and UnQover's mean |C|. Vertical"
        " lines: ideal model, and random model at 50. A filter is good where |C| falls, ss nears 50"
        " and lms stays."
    )
    return figure


def _labels(rows: pl.DataFrame) -> list[str]:
    return [
        " · ".join(
            part
            for part in (
                row["label"],
                row["language"],
                None if row["condition"] == "plain" else row["condition"],
            )
            if part
        )
        for row in rows.iter_rows(named=True)
    ]


def _dots(axes: "Axes", rows: pl.DataFrame, name: str, lines: tuple[float, ...]) -> None:
    for line in lines:
        axes.axvline(line, color=INK if line == lines[0] else MUTED, lw=0.6, ls=(0, (2, 2)))
    for y, row in enumerate(rows.iter_rows(named=True)):
        value = row[name]
        if value is None:
            continue
        colour = _COLOURS[row["filter"]]
        low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
        if low is not None and high is not None:
            axes.plot([low, high], [y, y], color=colour, lw=1.2)
        plain = row["condition"] == "plain"
        face = colour if plain else "none"
        axes.plot(value, y, "o", ms=4.5, markerfacecolor=face, markeredgecolor=colour)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


_MARKS = {"none": ("*", 90), "filter": ("o", 26), "untrained": ("X", 34), "temperature": ("s", 22)}


def search_figure(points: pl.DataFrame, model: str) -> "Figure":
    """`DebiasSearch.points`: held-out |C| against lms; the chosen point has a ring."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(6.6, 4.2), layout="constrained")
        axes = figure.add_subplot()
        shown = points.filter(pl.col("lms").is_not_null())
        for (kind, k), rows in shown.partition_by(
            "kind", "k", as_dict=True, maintain_order=True
        ).items():
            mark, size = _MARKS[str(kind)]
            sizes = shown["k"].drop_nulls().unique().sort().to_list()
            shade = 0.35 + 0.65 * (sizes.index(k) + 1) / len(sizes) if k is not None else 1.0
            colour = {"none": INK, "temperature": "#009e73"}.get(str(kind), COLOURS[0])
            colour = COLOURS[1] if kind == "untrained" else colour
            axes.scatter(
                rows["abs_c"], rows["lms"], marker=mark, s=size, color=colour, alpha=shade,
                linewidths=0, label=_point_label(str(kind), k),
            )  # fmt: skip
        front = shown.filter("front").sort("abs_c")
        axes.plot(front["abs_c"], front["lms"], color=MUTED, lw=0.8, zorder=1)
        best = shown.filter("best")
        axes.scatter(best["abs_c"], best["lms"], s=130, facecolors="none", edgecolors=INK)
        axes.set_xlabel("UnQover, mean |C| on held-out instances")
        axes.set_ylabel("StereoSet, lms")
        axes.set_xlim(left=0)
        axes.grid()
        axes.legend(loc="lower right")
        headline(figure, "Bias against language modelling", [model])
        figure.set_label(
            "Each mark is a filter or a baseline; up and left is better. Line: marks that no other"
            " beats in both. Ring: chosen on instances and terms that are not shown here."
        )
    return figure


def _point_label(kind: str, k: int | None) -> str:
    return {
        "none": "no filter",
        "filter": f"trained, k = {k}",
        "untrained": f"untrained, k = {k}",
        "temperature": "temperature",
    }[kind]
