"""The figures of StereoSet, drawn from the tables of `stereoset_figure_data`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import (
    INK,
    MUTED,
    STYLE,
    Curve,
    StepAxis,
    draw_curve,
    headline,
    kind_of,
    legend,
)
from logitbank.analysis.families.stereoset.blocks import OVERALL
from logitbank.analysis.families.stereoset.figure_data import stereoset_figure_data
from logitbank.analysis.families.stereoset.figures_plane import (
    DEFINED,
    LABELS,
    PALETTE,
    lms_against_ss,
    shortened,
    task_name,
    told_intervals,
)
from logitbank.analysis.families.stereoset.measures import REFERENCES
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.scores import BOTH, CAUSAL, INTER, INTRA, PLAIN
from logitbank.analysis.families.stereoset.summary import series_name
from logitbank.analysis.frames.expressions import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TASK_COLOURS = {BOTH: INK, INTRA: PALETTE[0], INTER: PALETTE[1], CAUSAL: PALETTE[2]}


def stereoset_figures(result: StereoSet) -> "dict[str, Figure]":
    """Every figure of a StereoSet result, under the names of `stereoset_figure_data`.

    lms and ss of each domain over training, or as bars; iCAT over training; lms against ss with
    lines of equal iCAT. A figure's label (`get_label()`) is its caption.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):  # type: ignore[arg-type]
        return {
            name: _DRAW[kind_of(name)](table)
            for name, table in stereoset_figure_data(result).items()
        }


def _domains(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 5.6), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    steps = StepAxis(table["step"].to_list())
    domains = [*_without(table["domain"], OVERALL), OVERALL]
    for place, measure in zip(axes, ("lms", "ss"), strict=True):
        for at, domain in enumerate(domains):
            rows = table.filter(pl.col("domain") == domain)
            band = domain == OVERALL
            curve = rows.select(
                "step",
                value=measure,
                low=f"{measure}_low" if band else measure,
                high=f"{measure}_high" if band else measure,
            )
            colour = INK if band else PALETTE[at % len(PALETTE)]
            draw_curve(place, Curve(domain, colour, _closed(curve)), steps)
        place.set_ylabel(LABELS[measure], fontsize=8.5)
        place.grid(axis="y")
        steps.apply(place, labelled=measure == "ss")
        _room(place, table, measure)
        _references(place, measure)
    legend(axes[0])
    _title(figure, "lms and ss by domain", table)
    figure.set_label(
        DEFINED
        + told_intervals(table, "Band, of overall")
        + " Dotted: ideal and random models, whose ss is 50."
    )
    return figure


def _bars(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    series = table.partition_by("model", "run", "condition", maintain_order=True)
    domains = [*_without(table["domain"], OVERALL), OVERALL]
    wide = 1.6 + max(1.15, 0.28 * len(series)) * len(domains)
    figure = Figure(figsize=(min(max(wide, 6.8), 14), 6.4), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    width = 0.76 / len(series)
    for place, measure in zip(axes, ("lms", "ss", "icat"), strict=True):
        for at, rows in enumerate(series):
            colour = PALETTE[at % len(PALETTE)]
            known = {row["domain"]: row for row in rows.iter_rows(named=True)}
            names = [name for name in domains if name in known]
            x = [domains.index(name) + (at - (len(series) - 1) / 2) * width for name in names]
            value = np.array([known[name][measure] for name in names])
            ends = [
                np.array([known[name][f"{measure}_{end}"] for name in names])
                for end in ("low", "high")
            ]
            label = series_name(rows.row(0, named=True))
            base = 50 if measure == "ss" else 0
            place.bar(
                x,
                value - base,
                width * 0.92,
                bottom=base,
                color=colour,
                alpha=0.8,
                label=shortened(label),
            )
            for spot, low, high in zip(x, *ends, strict=True):
                if low == low:
                    place.plot([spot, spot], [low, high], color=INK, lw=1.1)
            if len(series) <= 3:
                _numbers(place, x, value, ends, base=base)
        place.set_ylabel({"lms": "lms", "ss": "ss", "icat": "iCAT"}[measure])
        place.grid(axis="y")
        place.tick_params(axis="x", length=0)
        if measure == "ss":
            drawn = pl.concat([table["ss"], table["ss_low"], table["ss_high"]]).drop_nans()
            low, high = (float(str(end)) for end in (drawn.min() or 50, drawn.max() or 50))
            margin = max(0.16 * (high - low), 4)
            place.set_ylim(min(low, 50) - margin, max(high, 50) + margin)
            place.axhline(50, color=INK, lw=0.9)
        else:
            place.set_ylim(0, 112)
            place.set_yticks([0, 25, 50, 75, 100])
        _references(place, measure)
    axes[2].set_xticks(range(len(domains)), domains)
    axes[2].get_xticklabels()[-1].set_fontweight("bold")
    axes[2].set_xlim(-0.6, len(domains) - 0.4)
    if len(series) > 1:
        legend(axes[0])
    names = [] if len(series) > 1 else [series_name(series[0].row(0, named=True))]
    headline(figure, f"StereoSet, {task_name(table)}", names)
    figure.set_label(
        f"{DEFINED} iCAT combines the two.{told_intervals(table, 'Lines on the bars')} ss is drawn "
        "from 50 up for stereotypes, down for anti-stereotypes. Dotted: ideal and random models."
    )
    return figure


def _numbers(
    axes: "Axes", x: Sequence[float], value: Floats, ends: Sequence[Floats], *, base: float
) -> None:
    """The value beyond the end of each bar and of its interval."""
    for spot, number, low, high in zip(x, value, *ends, strict=True):
        if number == number:
            down = number < base
            end = number if low != low else low if down else high
            axes.annotate(
                f"{number:.1f}", (spot, end), xytext=(0, -3 if down else 2), fontsize=7,
                textcoords="offset points", ha="center", va="top" if down else "bottom",
            )  # fmt: skip


def _icat(table: pl.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 4.0), layout="constrained")
    axes = figure.add_subplot()
    steps = StepAxis(table["step"].to_list())
    conditions = [PLAIN, *_without(table["condition"], PLAIN)]
    conditions = [name for name in conditions if name in set(table["condition"])]
    for task in sorted(table["task"].unique(), key=list(TASK_COLOURS).index, reverse=True):
        for at, condition in enumerate(conditions):
            rows = table.filter((pl.col("task") == task) & (pl.col("condition") == condition))
            curve = rows.select("step", value="icat", low="icat_low", high="icat_high")
            if len(curve):
                label = task.replace("_", " ") if at == 0 else ""
                draw_curve(axes, Curve(label, TASK_COLOURS[task], _closed(curve), at > 0), steps)
    for at, condition in enumerate(conditions if len(conditions) > 1 else ()):
        style = (0, (4, 2)) if at else "-"
        axes.plot([], [], color=MUTED, ls=style, label=shortened(condition))
    axes.set_ylabel(LABELS["icat"])
    axes.grid(axis="y")
    steps.apply(axes)
    _room(axes, table, "icat")
    _references(axes, "icat")
    legend(axes)
    _title(figure, "iCAT over training", table, task=False, condition=len(conditions) == 1)
    figure.set_label(
        f"iCAT = lms · min(ss, 100 − ss) / 50, over all domains.{told_intervals(table, 'Bands')} "
        "An ideal model has 100, a random one 50, a fully stereotyped one 0."
        + (f" Dashed: {conditions[1]}." if len(conditions) > 1 else "")
    )
    return figure


_DRAW: "dict[str, Callable[[pl.DataFrame], Figure]]" = {
    "domains": _domains,
    "bars": _bars,
    "icat": _icat,
    "lms_ss": lms_against_ss,
}


def _references(axes: "Axes", measure: str) -> None:
    """Dotted lines of the ideal and of the random model where they lie inside the axes."""
    lines: dict[float, list[str]] = {}
    for name in ("ideal", "random"):
        value = dict(zip(("lms", "ss", "icat"), REFERENCES[name], strict=True))[measure]
        lines.setdefault(value, []).append(name)
    low, high = axes.get_ylim()
    for value, names in lines.items():
        if low <= value <= high:
            axes.axhline(value, color=MUTED, lw=1.0, ls=(0, (1, 2)), zorder=1)
            axes.text(
                1.008, value, ",\n".join(names), transform=axes.get_yaxis_transform(), fontsize=7.5,
                color=MUTED, va="center",
            )  # fmt: skip


def _room(axes: "Axes", table: pl.DataFrame, measure: str) -> None:
    """Limits with the values, their intervals of overall, and the nearest reference."""
    overall = table.filter(pl.col("domain") == OVERALL)
    ends = (overall[f"{measure}_{end}"] for end in ("low", "high"))
    values = pl.concat([table[measure], *ends])
    known = values.drop_nulls().drop_nans()
    low, high = (float(known.min()), float(known.max())) if len(known) else (50.0, 50.0)  # type: ignore[arg-type]
    low, high = min(low, 50.0), max(high, 50.0)
    margin = max(0.06 * (high - low), 1.0)
    axes.set_ylim(max(low - margin, -3), min(high + margin, 103))


def _closed(curve: pl.DataFrame) -> pl.DataFrame:
    """Where there is no interval, a band without width."""
    return curve.with_columns(
        pl.when(pl.col(end).is_nan()).then("value").otherwise(end).alias(end)
        for end in ("low", "high")
    )


def _without(names: pl.Series, name: str) -> list[str]:
    return [text for text in names.unique(maintain_order=True).to_list() if text != name]


def _title(
    figure: "Figure", title: str, table: pl.DataFrame, *, task: bool = True, condition: bool = True
) -> None:
    head = table.row(0, named=True)
    name = series_name(head if condition else {**head, "condition": PLAIN})
    headline(figure, f"{title}, {task_name(table)}" if task else title, [name])
