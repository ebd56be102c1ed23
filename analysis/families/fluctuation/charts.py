"""The charts of fluctuation: trajectories, the plateau, certainty against CV, and correlations."""

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import SERIES, color, curves, stacked, with_series
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import INK, MUTED
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.wording import counted

KEYS = ["model", "run", "verb"]
ROLES = {"prior": "prior", "largest cv_r": "largest CV of R", "smallest cv_r": "smallest CV of R"}
MEASURES = {"cv_r": "R", "cv_n": "N", "mean_r": "R", "mean_n": "N"}
MOST_SERIES = 6
"""Series in a chart of points or cells; of more, the first run of each model is drawn."""
MOST_TICKS = 8
MOST_WRITTEN = 10
"""Runs up to which the cells of a heat map have their numbers."""
CLIP = 0.6
"""Correlations below it have the darkest colour, as published."""


def charts(result: Fluctuation) -> dict[str, Chart]:
    """Those that the result has rows for; correlations of a single pair are findings."""
    found: dict[str, Chart] = {}
    first = result.plateaus.unique(KEYS, keep="first", maintain_order=True)
    scores = result.trajectories.join(
        first.select(*KEYS, "first_step"), on=KEYS, maintain_order="left"
    )
    found["trajectories"] = _trajectories(scores)
    found["plateau"] = _plateau(scores.filter(pl.col("step") >= pl.col("first_step")))
    points = result.professions.filter(pl.col("certainty").is_finite() & pl.col("cv_r").is_finite())
    if len(points):
        found["certainty_cv"] = _certainty(points, result.plateaus)
    if len(known := result.correlations.filter(pl.col("r").is_not_nan())):
        found["correlations"] = _correlations(known)
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


def _drawn(table: pl.DataFrame, *keys: str) -> tuple[pl.DataFrame, str]:
    """The rows of the series that are drawn, and a sentence if these are not all."""
    table = with_series(table, "verb", *keys)
    if (several := table[SERIES].n_unique()) <= MOST_SERIES:
        return table, ""
    first = table.filter(pl.col("run") == pl.col("run").first().over("model"))
    return first, (
        f" Drawn: {counted(first[SERIES].n_unique(), 'series')} of {several}, the first run of "
        "each model; the tables have all."
    )


def _n(table: pl.DataFrame, name: str = "n", noun: str = "profession") -> str:
    counts = sorted(table[name].to_list())
    least, most = counts[0], counts[-1]
    return f"n = {least:,} to {most:,} {noun}s" if least < most else f"n = {counted(most, noun)}"


def _excluded(table: pl.DataFrame) -> str:
    most = int(table["excluded"].max() or 0)  # type: ignore[arg-type]
    what = counted(most, "profession")
    return f" Left out: {'up to ' if most > 1 else ''}{what} with a missing or infinite value." * (
        most > 0
    )


def _panels(table: pl.DataFrame, axis: StepAxis, *, height: int) -> Chart:
    """One panel for the prior and each profession: both pronouns in all series."""
    table = with_series(table, "verb")
    groups = [
        part
        for role in table.partition_by("role", maintain_order=True)
        for part in (
            role.partition_by("occupation", maintain_order=True)
            if role["role"][0] == "chosen"
            else [role]
        )
    ]
    plots: list[Chart] = []
    for at, part in enumerate(groups):
        last = at == len(groups) - 1
        plot = curves(
            part, axis, y="relative", title="P / max P",
            group="pronoun", band=None, height=height, legend=at == 0, x_labels=last,
            tooltip={"Profession": "occupation", "Probability": "score"},
            x_title="Training step" if last else None,
        )  # fmt: skip
        plots.append(plot.properties(title=_panel_title(part)))
    return stacked(*plots)


def _panel_title(part: pl.DataFrame) -> str:
    role, names = part["role"][0], part["occupation"].unique(maintain_order=True)
    if role == "chosen":
        return str(names[0])
    name = ROLES[role]
    return (
        name[0].upper() + name[1:] if len(names) > 1 or role == "prior" else f"{names[0]}, {name}"
    )


def _trajectories(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    starts = table["first_step"].unique().sort()
    caption = (
        "Probabilities of “he” and “she”, each divided by its own largest over the training steps. "
        f"Plateau: from step {' or '.join(f'{step:,}' for step in starts)}. "
        f"n = {counted(table['step'].n_unique(), 'checkpoint')}."
    )
    if axis.release:
        caption += " Diamonds: the public release."
    chart = _panels(table, axis, height=90)
    return titled(chart, "Pronoun probabilities over training", caption, axis=axis)


def _plateau(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list(), scale="linear")
    caption = (
        "The same probabilities at the checkpoints of the plateau, from which CVs are computed, on "
        f"a linear axis of steps. n = {counted(table['step'].n_unique(), 'checkpoint')}."
    )
    chart = _panels(table, axis, height=90)
    return titled(chart, "Pronoun probabilities in the plateau", caption, axis=axis)


def _certainty(points: pl.DataFrame, plateaus: pl.DataFrame) -> Chart:
    points, drawn = _drawn(points, "plateau")
    priors = with_series(plateaus, "verb", "plateau").filter(
        pl.col(SERIES).is_in(points[SERIES].unique().implode())
    )
    names = points[SERIES].unique(maintain_order=True).to_list()
    panels = []
    for column in ("cv_r", "cv_n"):
        known = points.filter(pl.col(column).is_finite())
        x = alt.X("certainty:Q", title="Mean certainty C", scale=alt.Scale(zero=False))
        y = alt.Y(f"{column}:Q", title=f"CV of {MEASURES[column]}")
        cloud = (
            alt.Chart(known.select(SERIES, "occupation", "certainty", column))
            .mark_point(size=10, opacity=0.6, strokeWidth=0.8)
            .encode(
                x=x, y=y, color=color(SERIES, names, legend=column == "cv_r"),
                tooltip=[
                    alt.Tooltip("occupation:N", title="Profession"),
                    alt.Tooltip(f"{SERIES}:N", title="Model"),
                    alt.Tooltip("certainty:Q", title="C", format=".4~g"),
                    alt.Tooltip(f"{column}:Q", title=f"CV of {MEASURES[column]}", format=".4~g"),
                ],
            )
        )  # fmt: skip
        prior = (
            alt.Chart(priors.select(SERIES, certainty="prior_certainty", cv="prior_cv"))
            .mark_point(
                shape="cross", angle=45, filled=True, size=50, stroke="white", strokeWidth=0.4,
                opacity=1,
            )
            .encode(
                x=x, y=alt.Y("cv:Q", title=f"CV of {MEASURES[column]}"),
                color=color(SERIES, names, legend=column == "cv_r"),
                tooltip=[alt.Tooltip(f"{SERIES}:N", title="Prior of")],
            )
        )  # fmt: skip
        panels.append(alt.layer(cloud, prior).properties(height=150))
    counts = points.group_by(SERIES).len("n")
    caption = (
        "Each point is a profession: mean certainty C = P(he) + P(she) over the plateau, and the "
        "coefficient of variation of R = P(he) / P(she) and of N, which is R divided by the "
        f"prior's. ×: the prior with the CV of its own R. {_n(counts)}.{drawn}"
    )
    return titled(alt.vconcat(*panels, spacing=8), "Certainty and CV", caption)


def _correlations(table: pl.DataFrame) -> Chart:
    relation = pl.when(pl.col("case").is_null()).then(pl.lit("certainty"))
    table = with_series(table, "verb", "plateau").with_columns(
        pl.col("low", "high").fill_nan(None),
        relation=pl.format(
            "{}, {}", relation.otherwise(pl.format("frequency ({})", "case")),
            pl.col("y").replace_strict(MEASURES),
        ),
    )  # fmt: skip
    names = table[SERIES].unique(maintain_order=True).to_list()
    rows = table["relation"].unique(maintain_order=True).to_list()
    apart = 1 < len(names) <= MOST_SERIES
    shown = color(SERIES, names) if len(names) <= MOST_SERIES else alt.value(MUTED)
    y = alt.Y("relation:N", title=None, sort=rows)
    beside = {"yOffset": alt.YOffset(f"{SERIES}:N", sort=names)} if apart else {}
    used = [SERIES, "relation", "r", "low", "high", "n"]
    base = alt.Chart(table.select(used)).encode(y=y, color=shown, **beside)  # type: ignore[arg-type]
    title = "Correlation with the CV"
    ends = base.mark_rule().encode(x=alt.X("low:Q", title=title), x2="high:Q")
    points = base.mark_point(filled=True, size=24, opacity=1).encode(
        x=alt.X("r:Q", title=title),
        tooltip=[
            alt.Tooltip("relation:N", title="Correlation"),
            alt.Tooltip(f"{SERIES}:N", title="Model"),
            *(alt.Tooltip(f"{name}:Q", title=name, format=".3f") for name in ("r", "low", "high")),
            alt.Tooltip("n:Q", title="Professions"),
        ],
    )
    zero = alt.Chart(pl.DataFrame({"r": [0.0]})).mark_rule(strokeDash=[4, 3], color=MUTED)
    plot = alt.layer(zero.encode(x=alt.X("r:Q", title=title)), ends, points)
    row = 16 + (7 * len(names) if apart else 0)
    caption = (
        "Pearson correlation over professions of certainty C, and of corpus frequency by letter "
        "case, with the CV of R and of N. Bars: 95% confidence intervals (Fisher). "
        f"{_n(table)}.{_excluded(table)}"
    )
    chart = plot.properties(height=row * len(rows))
    return titled(chart, "Correlations with the CV", caption)


def _frequencies(table: pl.DataFrame) -> Chart:
    used = table.filter(pl.col("frequency") > 0)
    never = table.filter(pl.col("frequency") == 0).group_by("case", maintain_order=True).len()
    cases = used["case"].unique(maintain_order=True).to_list()
    chart = (
        alt.Chart(used)
        .mark_line(point=alt.OverlayMarkDef(size=10, filled=True), strokeWidth=1)
        .encode(
            x=alt.X("rank:Q", title="Rank of the profession", scale=alt.Scale(zero=False)),
            y=alt.Y(
                "frequency:Q", title="Corpus frequency (log scale)", axis=alt.Axis(tickCount=4),
                scale=alt.Scale(type="log"),
            ),
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
        f"{_n(table.group_by('case').len('n'))}."
        + (f" Not drawn, since they never occur: {absent}." if absent else "")
    )
    return titled(chart, "Corpus frequency of professions", caption)


def _heat(base: alt.Chart, x: alt.X, y: alt.Y, tooltip: Sequence[alt.Tooltip]) -> alt.Chart:
    scale = alt.Scale(scheme="viridis", domain=[CLIP, 1], clamp=True)
    legend = alt.Legend(orient="right", gradientLength=80, title="r")
    heat: alt.Chart = base.mark_rect().encode(
        x=x, y=y, color=alt.Color("r:Q", scale=scale, legend=legend), tooltip=list(tooltip)
    )
    return heat


def _checkpoint_pairs(table: pl.DataFrame, plateaus: pl.DataFrame) -> Chart:
    table, drawn = _drawn(table)
    steps = sorted({*table["step_a"], *table["step_b"]})
    ticks = steps[:: -(-len(steps) // MOST_TICKS)]
    axis: dict[str, Any] = {"values": ticks, "labelExpr": "format(datum.value, '~s')"}
    cells = table.select(SERIES, "step_a", "step_b", pl.col("r").round(4))
    heat = _heat(
        alt.Chart(cells),
        alt.X("step_a:O", title="Training step", axis=alt.Axis(labelAngle=-90, **axis), sort=steps),
        alt.Y("step_b:O", title="Training step", axis=alt.Axis(**axis), sort=steps),
        [
            alt.Tooltip("step_a:O", title="Step"),
            alt.Tooltip("step_b:O", title="Step"),
            alt.Tooltip("r:Q", title="r", format=".3f"),
        ],
    )
    several = table[SERIES].n_unique() > 1
    chart = (
        _faceted(heat, SERIES, table[SERIES].unique(maintain_order=True))
        if several
        else heat.properties(height=180)
    )
    starts = " or ".join(f"{step:,}" for step in plateaus["first_step"].unique().sort())
    caption = (
        "Pearson correlation of R between every two checkpoints; that of N is the same. Cells are "
        f"checkpoints, so steps are not to scale. Correlations below {CLIP} have the darkest "
        f"colour. Plateau: from step {starts}. {_n(table)}.{_excluded(table)}{drawn}"
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
    x = alt.X("run_a:N", title=None, sort=runs)
    y = alt.Y("run_b:N", title=None, sort=runs)
    tooltip = [
        alt.Tooltip("run_a:N", title="Run"),
        alt.Tooltip("run_b:N", title="Run"),
        *(alt.Tooltip(f"{name}:Q", title=name, format=".3f") for name in ("r", "low", "high")),
    ]
    used = table.select("panel", "run_a", "run_b", pl.col("r", "low", "high").fill_nan(None))
    base = alt.Chart(used)
    heat: Chart = _heat(base, x, y, tooltip)
    if len(runs) <= MOST_WRITTEN:
        ink = alt.when("datum.r > 0.85").then(alt.value(INK)).otherwise(alt.value("white"))
        text = base.mark_text().encode(x=x, y=y, text=alt.Text("r:Q", format=".2f"), color=ink)
        heat = alt.layer(heat, text)
    caption = (
        "Pearson correlation between every two runs of the professions' R and N, averaged over the "
        f"checkpoints of the plateau. {_n(table)}.{_excluded(table)}"
    )
    return titled(
        _faceted(heat, "panel", table["panel"].unique(maintain_order=True)),
        "Correlation between runs",
        caption,
    )


def _faceted(plot: Chart, by: str, names: Iterable[str]) -> Chart:
    facet = alt.Facet(f"{by}:N", header=alt.Header(title=None), sort=list(names))
    return plot.properties(height=130).facet(facet=facet, columns=2, spacing=8)
