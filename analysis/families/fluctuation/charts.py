"""The charts of fluctuation: trajectories, certainty against CV, and correlations."""

import math
from collections.abc import Iterable
from typing import Any

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    DASHES,
    HEIGHT,
    SERIES,
    color,
    column_tooltip,
    curves,
    stacked,
    vertical,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import INK
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.wording import counted

KEYS = ["model", "run", "verb"]
ROLES = {"prior": "prior", "largest cv_r": "largest CV of R", "smallest cv_r": "smallest CV of R"}
MEASURES = {"mean_r": "R", "mean_n": "N"}
MOST_SERIES = 6
"""Series in a chart of points or cells; of more, the first run of each model is drawn."""
MOST_TICKS = 8
MOST_WRITTEN = 10
"""Runs up to which the cells of a heat map have their numbers."""


def charts(result: Fluctuation) -> dict[str, Chart]:
    """Those that the result has rows for; correlations of a single pair are findings."""
    found: dict[str, Chart] = {}
    first = result.plateaus.unique(KEYS, keep="first", maintain_order=True)
    scores = result.trajectories.join(
        first.select(*KEYS, "first_step"), on=KEYS, maintain_order="left"
    )
    found["trajectories"] = _trajectories(scores)
    points = result.professions.filter(pl.col("certainty").is_finite() & pl.col("cv_r").is_finite())
    if len(points):
        found["certainty_cv"] = _certainty(points, result.plateaus)
    if len(result.frequencies):
        found["frequencies"] = _frequencies(result.frequencies)
    pairs = result.checkpoint_pairs.filter(pl.col("r").is_not_nan(), pl.len().over(KEYS) > 1)
    if len(pairs):
        found["checkpoint_pairs"] = _checkpoint_pairs(pairs, first)
    of_runs = result.run_pairs.filter(
        pl.col("r").is_not_nan(), pl.len().over("model", "verb", "plateau", "measure") > 1
    )
    if len(of_runs):
        found["run_pairs"] = _run_pairs(of_runs)
    return found


def _drawn(table: pl.DataFrame, *keys: str, most: int = MOST_SERIES) -> tuple[pl.DataFrame, str]:
    """The rows of the series that are drawn, and a sentence if these are not all."""
    table = with_series(table, "verb", *keys)
    if (several := table[SERIES].n_unique()) <= most:
        return table, ""
    first = table.filter(pl.col("run") == pl.col("run").first().over("model"))
    return first, (
        f" Drawn: {counted(first[SERIES].n_unique(), 'series')} of {several}, the first run of "
        "each model; the tables have all."
    )


def _excluded(table: pl.DataFrame) -> str:
    most = int(table["excluded"].max() or 0)  # type: ignore[arg-type]
    what = counted(most, "profession")
    return f" Left out: {'up to ' if most > 1 else ''}{what} with a missing or infinite value." * (
        most > 0
    )


def _panel_title(part: pl.DataFrame) -> str:
    role, names = part["role"][0], part["occupation"].unique(maintain_order=True)
    if role == "chosen":
        return str(names[0])
    name = ROLES[role]
    if len(names) > 1 or role == "prior":
        return name[0].upper() + name[1:]
    return f"{names[0]}, {name}"


def _trajectories(table: pl.DataFrame) -> Chart:
    """One panel for the prior and each profession: both pronouns in all series."""
    axis = StepAxis(table["step"].to_list())
    starts = table["first_step"].unique().sort()
    lines = [vertical(step, axis) for step in starts if step > axis.start]
    measure = Measure("relative", "P / max P", None, "share")
    tooltip = {"Profession": "occupation", "Probability": "score"}
    panel = pl.when(role="chosen").then("occupation").otherwise("role")
    table, drawn = _drawn(table, most=DASHES)
    named = table.with_columns(panel=panel)
    plots = []
    for part in named.partition_by("panel", maintain_order=True):
        plot = curves(part, axis, measure, group="pronoun", tooltip=tooltip)
        plots.append(alt.layer(*lines, plot).properties(title=_panel_title(part), height=HEIGHT))
    caption = (
        "Probabilities of “he” and “she”, each divided by its own largest over the training steps. "
        f"Dashed: the start of the plateau, step {' or '.join(f'{step:,}' for step in starts)}. "
        f"n = {counted(table['step'].n_unique(), 'checkpoint')}."
    )
    if axis.release:
        caption += " Diamonds: the public release."
    caption += drawn
    title = "Pronoun probabilities over training"
    return titled(stacked(*plots), title, caption, axis=axis)


def _certainty(points: pl.DataFrame, plateaus: pl.DataFrame) -> Chart:
    points, drawn = _drawn(points, "plateau")
    names = points[SERIES].unique(maintain_order=True).to_list()
    priors = with_series(plateaus, "verb", "plateau").filter(pl.col(SERIES).is_in(names))
    panels = []
    for column, title in (("cv_r", "CV of R"), ("cv_n", "CV of N")):
        shown = color(SERIES, names, legend=column == "cv_r")
        x = alt.X("certainty:Q", title="Mean certainty C", scale=alt.Scale(zero=False))
        known = points.filter(pl.col(column).is_finite())
        known = known.select(SERIES, "occupation", "certainty", column)
        texts = {
            "occupation": "Profession", SERIES: "Model", "certainty": "C", column: title
        }  # fmt: skip
        y = Measure(column, title, None, "zero").about(known)
        cloud = alt.Chart(known).mark_point(size=10, opacity=0.6, strokeWidth=0.8)
        prior = alt.Chart(priors.select(SERIES, certainty="prior_certainty", cv="prior_cv"))
        cross = prior.mark_point(
            shape="cross", angle=45, filled=True, size=50, stroke="white", strokeWidth=0.4,
            opacity=1,
        )  # fmt: skip
        layers = [
            cloud.encode(
                x=x, y=alt.Y(f"{column}:Q", **y), color=shown,
                tooltip=[column_tooltip(known, name, text) for name, text in texts.items()],
            ),
            cross.encode(
                x=x, y=alt.Y("cv:Q", **y), color=shown,
                tooltip=[alt.Tooltip(f"{SERIES}:N", title="Prior of")],
            ),
        ]  # fmt: skip
        # The prior has no N, which is R divided by the prior's.
        shown_layers = layers if column == "cv_r" else layers[:1]
        panels.append(alt.layer(*shown_layers).properties(height=HEIGHT))
    counts = points.group_by(SERIES).len()["len"]
    caption = (
        "Each point is a profession: mean certainty C = P(he) + P(she) over the plateau, and the "
        "coefficient of variation of R = P(he) / P(she) and of N, which is R divided by the "
        f"prior's. ×: the prior with the CV of its own R. {sample_size(counts, 'profession')}."
        f"{drawn}"
    )
    return titled(alt.vconcat(*panels, spacing=8), "Certainty and CV", caption)


def _frequencies(table: pl.DataFrame) -> Chart:
    used = table.filter(pl.col("frequency") > 0)
    never = table.filter(pl.col("frequency") == 0).group_by("case", maintain_order=True).len()
    cases = used["case"].unique(maintain_order=True).to_list()
    frequency = Measure("frequency", "Corpus frequency (log scale)", None, "log")
    chart = (
        alt.Chart(used)
        .mark_line(point=alt.OverlayMarkDef(size=10, filled=True), strokeWidth=1)
        .encode(
            x=alt.X("rank:Q", title="Rank of the profession", scale=alt.Scale(zero=False)),
            y=alt.Y("frequency:Q", **frequency.about(used)),
            color=color("case", cases),
            tooltip=[
                alt.Tooltip("occupation:N", title="Profession"),
                alt.Tooltip("case:N", title="Case"),
                alt.Tooltip("rank:Q", title="Rank"),
                alt.Tooltip("frequency:Q", title="Frequency", format=".4~g"),
            ],
        )
        .properties(height=160)
    )  # fmt: skip
    absent = "; ".join(f"{case} {count:,}" for case, count in never.rows())
    caption = (
        "Professions sorted by their frequency in the corpus, by letter case. "
        f"{sample_size(table.group_by('case').len()['len'], 'profession')}."
        + (f" Not drawn, since they never occur: {absent}." if absent else "")
    )
    return titled(chart, "Corpus frequency of professions", caption)


def _color_range(r: pl.Series) -> tuple[float, float]:
    """The ends of a colour scale for correlations: the next tenths.

    >>> _color_range(pl.Series([0.41, 0.73])), _color_range(pl.Series([1.0]))
    ((0.4, 0.8), (0.9, 1.0))
    """
    values = r.to_list()
    high = math.ceil(round(10 * max(values), 6))
    return min(math.floor(round(10 * min(values), 6)), high - 1) / 10, high / 10


def _heat(base: alt.Chart, x: str, y: str, ends: tuple[float, float], **axis: Any) -> alt.Chart:
    """A matrix of correlations, coloured from `ends`; `axis` are properties of both axes."""
    scale = alt.Scale(scheme="viridis", domain=[*ends])
    legend = alt.Legend(orient="right", gradientLength=80, title="r")
    numbers = [alt.Tooltip(f"{name}:Q", title=name, format=".3f") for name in ("r", "low", "high")]
    heat: alt.Chart = base.mark_rect().encode(
        x=alt.X(x, **axis),
        y=alt.Y(y, **axis),
        color=alt.Color("r:Q", scale=scale, legend=legend),
        tooltip=[alt.Tooltip(x), alt.Tooltip(y), *numbers],
    )
    return heat


def _checkpoint_pairs(table: pl.DataFrame, plateaus: pl.DataFrame) -> Chart:
    table, drawn = _drawn(table)
    steps = sorted({*table["step_a"], *table["step_b"]})
    ticks = steps[:: -(-len(steps) // MOST_TICKS)]
    axis = alt.Axis(values=ticks, labelExpr="format(datum.value, '~s')")
    cells = table.select(SERIES, "step_a", "step_b", pl.col("r", "low", "high").round(4))
    base = alt.Chart(cells.with_columns(pl.col("low", "high").fill_nan(None)))
    ends = _color_range(cells["r"])
    heat = _heat(base, "step_a:O", "step_b:O", ends, title="Training step", axis=axis, sort=steps)
    names = table[SERIES].unique(maintain_order=True).to_list()
    chart = _faceted(heat, SERIES, names) if len(names) > 1 else heat.properties(height=180)
    starts = " or ".join(f"{step:,}" for step in plateaus["first_step"].unique().sort())
    caption = (
        "Pearson correlation of R between every two checkpoints; that of N is the same. Cells are "
        f"checkpoints, so steps are not to scale. Colours: viridis, linear from {ends[0]:g} "
        f"(dark) to {ends[1]:g} (yellow). Plateau: from step {starts}. "
        f"{sample_size(table['n'], 'profession')}."
        f"{_excluded(table)}{drawn}"
    )
    return titled(chart, "Correlation between checkpoints", caption)


def _run_pairs(table: pl.DataFrame) -> Chart:
    parts = [key for key in ("model", "verb", "plateau") if table[key].n_unique() > 1]
    panel = pl.concat_str(
        *(pl.col(key).cast(pl.String) for key in parts),
        pl.col("measure").replace_strict(MEASURES), separator=", ",
    )  # fmt: skip
    table = table.with_columns(panel=panel)
    runs = sorted({*table["run_a"], *table["run_b"]}, key=lambda run: (len(run), run))
    used = table.select("panel", "run_a", "run_b", pl.col("r", "low", "high").fill_nan(None))
    base = alt.Chart(used)
    ends = _color_range(used["r"])
    heat: Chart = _heat(base, "run_a:N", "run_b:N", ends, title=None, sort=runs)
    if len(runs) <= MOST_WRITTEN:
        bright = ends[0] + 0.6 * (ends[1] - ends[0])
        ink = alt.when(f"datum.r > {bright:g}").then(alt.value(INK)).otherwise(alt.value("white"))
        x, y = alt.X("run_a:N", sort=runs), alt.Y("run_b:N", sort=runs)
        number = alt.Text("r:Q", format=".2f")
        heat = alt.layer(heat, base.mark_text().encode(x=x, y=y, text=number, color=ink))
    caption = (
        "Pearson correlation between every two runs of the professions' R and N, averaged over the "
        f"checkpoints of the plateau. Colours: viridis, linear from {ends[0]:g} (dark) to "
        f"{ends[1]:g} (yellow). {sample_size(table['n'], 'profession')}.{_excluded(table)}"
    )
    chart = _faceted(heat, "panel", table["panel"].unique(maintain_order=True))
    return titled(chart, "Correlation between runs", caption)


def _faceted(plot: Chart, by: str, names: Iterable[str]) -> Chart:
    facet = alt.Facet(f"{by}:N", header=alt.Header(title=None), sort=list(names))
    return plot.properties(height=130).facet(facet=facet, columns=2, spacing=8)
