"""The charts of fluctuation: trajectories, certainty against CV, and correlations."""

import math
import re
import textwrap
from collections.abc import Iterable
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl

from logitbank.analysis.charts.chart import Chart, Layers, sample_size, titled
from logitbank.analysis.charts.curves import (
    HEIGHT,
    SERIES,
    color,
    column_tooltip,
    curves,
    grid,
    vertical,
    with_series,
)
from logitbank.analysis.charts.measure import Measure, even_ticks
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import BLUE, INK, MUTED
from logitbank.analysis.families.fluctuation import FAMILY
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.results import measured
from logitbank.wording import counted

KEYS = ["model", "run", "verb"]
ROLES = {"largest cv_r": "largest CV of R", "smallest cv_r": "smallest CV of R"}
MEASURES = {"mean_r": "R", "mean_n": "N"}
MOST_SERIES = 6
"""Series in a chart of points or cells; of more, the first run of each model is drawn."""
EDGE = 1.2
"""End of the axis of trajectories. Training steps are at most 1; only a release can be above it."""
MOST_COLUMNS = 3
"""Panels of trajectories side by side."""
BINS = 24
"""Bins of a histogram at a margin."""
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
    return found | measured.charts(FAMILY, result.headline)


def _drawn(table: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The rows of the series that are drawn, and a sentence if these are not all."""
    parts = [pl.format("“{}”", "verb")]
    if "plateau" in table.columns and table.group_by(KEYS).n_unique()["plateau"].max() != 1:
        parts.append(pl.format("from {}", "plateau"))
    table = with_series(table).with_columns(
        pl.concat_str(SERIES, *parts, separator=" ").alias(SERIES)
    )
    if (several := table[SERIES].n_unique()) <= MOST_SERIES:
        return table, ""
    first = table.filter(pl.col("run") == pl.col("run").first().over("model"))
    return first, (
        f" Drawn: the first run of each model ({first[SERIES].n_unique()} of {several} series). "
        "--run and --verb choose others; the tables have all."
    )


def _excluded(table: pl.DataFrame) -> str:
    most = int(table["excluded"].max() or 0)  # type: ignore[arg-type]
    what = counted(most, "profession")
    return f" Left out: {'up to ' if most > 1 else ''}{what} with a missing or infinite value." * (
        most > 0
    )


def _trajectories(table: pl.DataFrame) -> Chart:
    """A row of panels for each series: the prior, then each profession."""
    table, drawn = _drawn(table)
    axis = StepAxis(table["step"].to_list(), "linear")  # the plateau is the late half
    place = pl.when(role="chosen").then("occupation").otherwise("role")
    places = table.select(place.unique(maintain_order=True)).to_series()
    table = table.with_columns(shown=pl.col("relative").fill_nan(None).clip(upper_bound=EDGE))
    highest = table["shown"].max()
    rows = []
    for at in range(0, len(places), MOST_COLUMNS):
        block = table.filter(place.is_in(places[at : at + MOST_COLUMNS].implode()))
        for row in block.partition_by(SERIES, maintain_order=True):
            panels = row.partition_by("occupation", "role", maintain_order=True)
            rows.append([_trajectory(panel, axis, highest) for panel in panels])
    starts = table["first_step"].unique().sort()
    caption = (
        "Probabilities of “he” and “she”, each divided by its own largest over the training steps. "
        f"Dashed: the start of the plateau, step {' or '.join(f'{step:,}' for step in starts)}. "
        f"n = {counted(table['step'].n_unique(), 'checkpoint')}."
    )
    if roles := [ROLES[each] for each in places if each in ROLES]:
        caption += f" Columns: the prior, {', '.join(f'the profession of {r}' for r in roles)}."
    if axis.release:
        caption += " Diamonds: the public release."
    if len(_above(table)):
        caption += f" At the upper edge: those above {EDGE:g}, with their values."
    caption += drawn
    return titled(grid(rows), "Pronoun probabilities over training", caption, axis=axis)


def _trajectory(panel: pl.DataFrame, axis: StepAxis, highest: Any) -> alt.LayerChart:
    """Both pronouns of a profession, or of the prior, in one series.

    `highest` is the largest value of all panels, whose axes are alike.
    """
    title = "\n".join([*_lines(panel[SERIES][0], 22), "P / max P"])
    measure = Measure("shown", title, None, "share", highest)
    tooltip = {"Profession": "occupation", "Probability": "score", "P / max P": "relative"}
    plot = curves(panel, axis, measure, group="pronoun", tooltip=tooltip)
    layers: list[Any] = [plot]
    if len(above := axis.of(_above(panel))):
        values = zip(above["pronoun"], above["relative"], strict=True)
        text = "\n".join(f"{pronoun} {value:.3g}" for pronoun, value in values)
        label = alt.Chart(above.select("at", "shown").head(1)).mark_text(
            text=text, lineBreak="\n", align="right", baseline="top", dx=-6, dy=-2, fontSize=7
        )
        layers.append(label.encode(x=axis.x(), y=alt.Y("shown:Q", **measure.about(panel))))
    start = panel["first_step"][0]
    if start > axis.start:
        layers.insert(0, vertical(start, axis))
    name = "prior" if panel["role"][0] == "prior" else panel["occupation"][0]
    heading = alt.TitleParams(text=_lines(name, 12), fontSize=8, frame="group")
    return Layers(layer=layers, title=heading, height=HEIGHT)


def _above(table: pl.DataFrame) -> pl.DataFrame:
    """The releases whose probability is far above all of training."""
    return table.filter(pl.col("relative") > EDGE)


def _lines(text: str, width: int) -> list[str]:
    """A text in lines of at most so many characters, if its words and “verbs” are not longer.

    A longer name of a model is broken after a /, - or _.

    >>> _lines("org/model-1.4b-deduped “works as”", 12)
    ['org/model-', '1.4b-deduped', '“works as”']
    """
    whole = re.sub("“.*?”", lambda verb: verb[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(whole, width, break_long_words=False, break_on_hyphens=False)
    parts = list[str]()
    for line in lines:
        parts.append("")
        for piece in re.findall(r"[^/_-]+[/_-]*|[/_-]+", line) if len(line) > width else [line]:
            if parts[-1] and len(parts[-1]) + len(piece) > width:
                parts.append("")
            parts[-1] += piece
    return [part.replace("\xa0", " ") for part in parts]


def _certainty(points: pl.DataFrame, plateaus: pl.DataFrame) -> Chart:
    """Panels of R and, beneath those, of N, two series side by side; of one, R beside N."""
    priors = plateaus.select(*KEYS, "plateau", "prior_certainty", "prior_cv")
    points, drawn = _drawn(points.join(priors, on=[*KEYS, "plateau"], maintain_order="left"))
    series = points.partition_by(SERIES, maintain_order=True)
    rows: list[list[tuple[pl.DataFrame, str]]] = []
    for pair in (series[at : at + 2] for at in range(0, len(series), 2)):
        if len(pair) == 1:
            rows.append([(pair[0], measure) for measure in "RN"])
        else:
            rows += [[(part, measure) for part in pair] for measure in "RN"]
    panels = [alt.hconcat(*(_cloud(part, of) for part, of in row)) for row in rows]
    caption = (
        "Each point is a profession: mean certainty C = P(he) + P(she) over the plateau, and the "
        "coefficient of variation of R = P(he) / P(she) or of N, which is R divided by the "
        "prior's. ×, in the panels of R: the prior with the CV of its own R. At the margins: "
        f"numbers of professions. {sample_size(points.group_by(SERIES).len()['len'], 'profession')}"
        f".{drawn}"
    )
    return titled(alt.vconcat(*panels, spacing=8), "Certainty and CV", caption)


def _cloud(points: pl.DataFrame, measure: str) -> alt.LayerChart:
    """The professions of a series with histograms at the margins; the prior in a panel of R."""
    name, column = points[SERIES][0], f"cv_{measure.lower()}"
    known = points.filter(pl.col(column).is_finite())
    known = known.select("occupation", "certainty", cv=column)
    prior = points.head(measure == "R").select(certainty="prior_certainty", cv="prior_cv")
    prior = prior.filter(pl.all_horizontal(pl.all().is_finite()))
    both = pl.concat([known.drop("occupation"), prior])
    x, y = (_margin(known[axis], both[axis]) for axis in ("certainty", "cv"))
    top = x.bars.select("low", "high", base=y.end, tip=y.end + y.room * pl.col("share"))
    right = y.bars.select("low", "high", base=x.end, tip=x.end + x.room * pl.col("share"))
    bars: dict[str, Any] = {"fill": MUTED, "opacity": 0.6, "stroke": "white", "strokeWidth": 0.3}
    channels = {
        "x": x.channel("certainty", "Mean certainty C"), "y": y.channel("cv", f"CV of {measure}")
    }  # fmt: skip
    tips = [
        column_tooltip(known, key, text) for key, text in
        (("occupation", "Profession"), ("certainty", "C"), ("cv", f"CV of {measure}"))
    ]  # fmt: skip
    cloud = alt.Chart(known).mark_point(size=8, opacity=0.6, strokeWidth=0.7, color=BLUE)
    cross = alt.Chart(prior).mark_point(
        shape="cross", angle=45, filled=True, size=60, color=INK, stroke="white",
        strokeWidth=0.4, opacity=1,
    )  # fmt: skip
    layers = [
        cloud.encode(**channels, tooltip=tips),
        alt.Chart(top).mark_rect(**bars).encode(x="low:Q", x2="high:Q", y="base:Q", y2="tip:Q"),
        alt.Chart(right).mark_rect(**bars).encode(y="low:Q", y2="high:Q", x="base:Q", x2="tip:Q"),
    ]
    if len(prior):
        layers.append(cross.encode(x="certainty:Q", y="cv:Q", tooltip=[alt.Tooltip("cv:Q")]))
    heading = alt.TitleParams(text=_lines(f"{name}: {measure}", 18), fontSize=8, frame="group")
    return Layers(layer=layers, height=100, title=heading)


class _Margin(NamedTuple):
    """One axis of a panel: as long as its values, then room for the other axis's histogram."""

    start: float
    end: float
    bars: pl.DataFrame
    """low and high of each bin; share: its count, divided by the largest one."""

    @property
    def room(self) -> float:
        """Length of the largest bar of the other axis's histogram."""
        return 0.2 * (self.end - self.start)

    def channel(self, column: str, title: str) -> alt.X | alt.Y:
        """The channel, with ticks beside the values only."""
        scale = alt.Scale(domain=[self.start, self.end + self.room], nice=False, zero=False)
        ticks = even_ticks(self.start, self.end)
        # Axes of one width keep the panels of all rows above each other.
        about: dict[str, Any] = {"minExtent": 24, "maxExtent": 24} if column == "cv" else {}
        # Vega leaves ticks out if there are more than `tickCount`, which depends on the size.
        about |= {"tickCount": len(ticks), "labelOverlap": "greedy"}
        axis = alt.Axis(values=ticks, labelExpr="format(datum.value, '~g')", grid=False, **about)
        kind = alt.Y if column == "cv" else alt.X
        return kind(f"{column}:Q", title=title, scale=scale, axis=axis)


def _margin(values: pl.Series, shown: pl.Series) -> _Margin:
    """The axis of a panel that fits the points `shown`, with a histogram of `values`."""
    ends = [*shown] or [0.0, 1.0]
    low, high = min(ends), max(ends)
    pad = 0.04 * (high - low) or 0.1 * (abs(low) or 1)
    counts, edges = np.histogram(values.to_numpy(), BINS, (low - pad, high + pad))
    share = counts / max(1, counts.max())
    bars = pl.DataFrame({"low": edges[:-1], "high": edges[1:], "share": share})
    return _Margin(low - pad, high + pad, bars.filter(pl.col("share") > 0))


def _frequencies(table: pl.DataFrame) -> Chart:
    totals = table.group_by("case", maintain_order=True).agg(pl.col("frequency").sum())
    # A count without regard to case is at least that of any case.
    order = totals.sort("frequency", maintain_order=True, descending=True)["case"][0]
    ranks = table.filter(case=order).select("occupation", "rank")
    table = table.drop("rank").join(ranks, on="occupation", maintain_order="left")
    used = table.filter(pl.col("frequency") > 0)
    never = table.filter(pl.col("frequency") == 0).group_by("case", maintain_order=True).len()
    cases = totals["case"].to_list()
    frequency = Measure("frequency", "Corpus frequency (log scale)", None, "log")
    x = alt.Scale(domain=[0, len(ranks)], nice=False)
    chart = (
        alt.Chart(used)
        .mark_point(size=4, strokeWidth=1)
        .encode(
            x=alt.X("rank:Q", title="Rank of the profession", scale=x),
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
        f"Professions in the order of their frequency in the corpus ({order}), by letter case. "
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
    axis = alt.Axis(
        ticks=False, labelOverlap="greedy", labelSeparation=12,
        labelExpr="format(datum.value, '~s')",
    )  # fmt: skip
    table = table.with_columns(_header(table[SERIES]))
    cells = table.select(SERIES, "step_a", "step_b", pl.col("r", "low", "high").round(4))
    base = alt.Chart(cells.with_columns(pl.col("low", "high").fill_nan(None)))
    ends = _color_range(cells["r"])
    heat = _heat(base, "step_a:O", "step_b:O", ends, title="Training step", axis=axis, sort=steps)
    names = table[SERIES].unique(maintain_order=True).to_list()
    chart: Chart = heat.properties(height=180)
    if len(names) > 1:  # models may have other steps
        faceted = _faceted(heat, SERIES, names)
        chart = faceted.resolve_scale(x="independent", y="independent")
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
    table = table.with_columns(_header(table["panel"]))
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


def _header(names: pl.Series) -> pl.Series:
    """Names of panels in lines: a wide header takes its space from the cells."""
    return names.replace_strict({name: "\n".join(_lines(name, 18)) for name in names.unique()})


def _faceted(plot: Chart, by: str, names: Iterable[str]) -> Chart:
    header = alt.Header(title=None, labelExpr="split(datum.value, '\\n')")
    facet = alt.Facet(f"{by}:N", header=header, sort=list(names))
    return plot.properties(height=130).facet(facet=facet, columns=2, spacing=8)
