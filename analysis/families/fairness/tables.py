"""The tables of fairness, from the scores of some checkpoints: means, intervals and tests."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats, scaled, three_way_correct
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.score_arrays import LABELS, OPTIONS, GoldCounts, ScoreArrays
from logitbank.analysis.results.curve import Course
from logitbank.analysis.results.curve import change_table as changes_of
from logitbank.analysis.stats.bootstrap import (
    FEWEST_CLUSTERS,
    Interval,
    bootstrap_means,
    cluster_numbers,
    clustered_interval,
    percentile_interval,
)
from logitbank.analysis.stats.differences import (
    BASELINE_SCHEMA,
    Difference,
    stacked_draws,
    with_baseline,
    with_draws,
)
from logitbank.analysis.stats.significance import (
    SIGNIFICANCE,
    SeedMean,
    benjamini_hochberg,
    mann_whitney,
    mean_present,
    rank_biserial,
    seed_mean,
    wilcoxon,
)

Columns = Mapping[str, str | np.ndarray]
Unit = Literal["prompt", "prompt_order", "seed"]
MANN_WHITNEY, WILCOXON = "mann_whitney", "wilcoxon"
RESULT = (
    *("test", "origin", "unit", "statistic", "p", "p_bh", "n1", "n2", "effect"),
    *("significant", "significant_bh", *BASELINE_SCHEMA),
)
"""Columns of a test. `origin` is `published`, or `ours` if the test is not in the paper. `p_bh` is
adjusted over the checkpoints of a run (Benjamini–Hochberg; not in the paper). `significant` is
p < 0.01, the published rule. Differences are of means, and point as the rank-biserial correlation:
female minus male, or the first model minus the other one."""


class Sample(NamedTuple):
    """The n prompts of one gold option, at c checkpoints and in s option orders."""

    values: Floats
    """(c, s, n), NaN where missing."""
    means: Floats
    """(c, s) over the prompts."""
    draws: Floats
    """(b, c) the mean over prompts and orders in every resample; the same sentences in all."""
    sentences: Codes
    """(c,) clusters that have a value."""

    @property
    def prompts(self) -> Codes:
        """(c,) prompts that have a value under any order."""
        count: Codes = (~np.isnan(self.values)).any(axis=1).sum(axis=1)
        return count


def samples(
    data: ScoreArrays, measures: Sequence[Floats], counts: GoldCounts
) -> list[list[Sample]]:
    """A sample of each of some measures, (c, s, p), for every gold option: by option, by measure.

    All measures of a gold option are resampled by one matrix product.
    """
    return [
        _of_gold([each[:, :, right] for each in measures], data.axes.clusters[right], counts[gold])
        for gold, right in enumerate(data.gold == gold for gold in range(OPTIONS))
    ]


def _of_gold(values: Sequence[Floats], clusters: Codes, counts: Floats) -> list[Sample]:
    draws = np.split(bootstrap_means(np.concatenate(values), counts), len(values), axis=1)
    return [
        Sample(each, mean_present(each, axis=2), drawn, cluster_numbers(each, clusters))
        for each, drawn in zip(values, draws, strict=True)
    ]


def gender_difference(male: Sample, female: Sample) -> Difference:
    """Mean over prompts whose answer is female minus that over those whose answer is male."""
    return Difference(
        seed_mean(female.means - male.means),
        female.draws - male.draws,
        np.minimum(male.sentences, female.sentences),
    )


def in_scale(nats: Difference) -> Difference:
    """A difference of JSD-P, scaled to its largest value."""
    mean = SeedMean(scaled(nats.mean.mean), scaled(nats.mean.sd), nats.mean.seeds)
    return Difference(mean, scaled(nats.draws), nats.sentences)


def expected_cells(expected: pl.DataFrame) -> dict[str, int]:
    """Number of expected prompts, each under each of its orders, by model."""
    cells = expected.select("model", "prompt_id", "order_seed").unique()
    return dict(cells.group_by("model").len().iter_rows())


def coverage(data: ScoreArrays, expected: Mapping[str, int] | None = None) -> pl.DataFrame:
    """Prompts, option orders and missing cells (prompt × order) per checkpoint.

    Without `expected`, every cell of the array is expected.
    """
    scored = ~np.isnan(data.ranks)
    cells, models = scored.sum(axis=(1, 2)), data.checkpoints["model"].to_list()
    whole = [(expected or {}).get(model, scored[0].size) for model in models]
    return data.checkpoints.with_columns(
        prompts=scored.any(axis=1).sum(axis=1),
        orders=scored.any(axis=2).sum(axis=1),
        missing=np.maximum(np.array(whole, np.int64) - cells, 0),
    )


def rank_table(data: ScoreArrays, ranks: Sequence[Sample]) -> pl.DataFrame:
    """Average Rank of the gold token and its geometric mean, per gold option with its sample.

    The bootstrap interval of a mean of very skewed ranks is too short: at 20 sentences it covers
    58 to 88 %. That of the geometric mean rank, t on the scale of ln rank, covers 95 % there.
    """
    groups: list[Columns] = []
    for index, (label, sample) in enumerate(zip(LABELS, ranks, strict=True)):
        right = data.gold == index
        mean = seed_mean(sample.means)
        interval = _interval(sample.draws, mean.mean, sample.sentences)
        logs = mean_present(np.log(sample.values), axis=1)
        geometric = clustered_interval(logs, data.axes.clusters[right])
        groups.append(
            {
                "gold": label,
                "average_rank": mean.mean,
                "sd": mean.sd,
                "low": interval.low,
                "high": interval.high,
                "geometric_rank": np.exp(mean_present(logs, axis=1)),
                "geometric_low": np.exp(geometric.low),
                "geometric_high": np.exp(geometric.high),
                "prompts": sample.prompts,
                "sentences": sample.sentences,
                "orders": mean.seeds,
                "tied": data.tied[:, :, right].sum(axis=(1, 2)),
                "inexact": data.inexact[:, :, right].sum(axis=(1, 2)),
            }
        )
    return _tidy(data.checkpoints, groups)


def accuracy_table(data: ScoreArrays) -> pl.DataFrame:
    """Accuracy per gold option, and for `all` prompts."""
    present = ~np.isnan(data.ranks)
    hits = np.where(present, data.top, np.nan)
    three_way = np.where(present, three_way_correct(data.logits, data.gold), np.nan)
    by_label = {label: data.gold == index for index, label in enumerate(LABELS)}
    groups: list[Columns] = []
    for label, prompts in {**by_label, "all": np.ones_like(data.gold, bool)}.items():
        top = seed_mean(mean_present(hits[:, :, prompts], axis=2))
        three = seed_mean(mean_present(three_way[:, :, prompts], axis=2))
        groups.append(
            {
                "gold": label,
                "accuracy": top.mean,
                "sd": top.sd,
                "three_way_accuracy": three.mean,
                "three_way_sd": three.sd,
                "prompts": present[:, :, prompts].any(axis=1).sum(axis=1),
            }
        )
    return _tidy(data.checkpoints, groups)


def jsd_table(checkpoints: pl.DataFrame, parts: Sequence[Sequence[Sample]]) -> pl.DataFrame:
    """Mean JSD-P of every option over the prompts of every gold option.

    `parts` are samples of JSD-P in nats, by gold option and by option.
    """
    groups: list[Columns] = []
    for gold, of_options in zip(LABELS, parts, strict=True):
        for option, sample in zip(LABELS, of_options, strict=True):
            mean = seed_mean(sample.means)
            interval = _interval(sample.draws, mean.mean, sample.sentences)
            groups.append(
                {
                    "gold": gold,
                    "option": option,
                    **_both_units({"": mean.mean, "sd": mean.sd, **interval._asdict()}),
                    "prompts": sample.prompts,
                    "sentences": sample.sentences,
                }
            )
    return _tidy(checkpoints, groups)


def gap_table(checkpoints: pl.DataFrame, difference: Difference) -> pl.DataFrame:
    """JSD-P(female | gold female) − JSD-P(male | gold male), order by order, then averaged.

    With the draws of the difference in nats, for `gap_changes` and a trade-off.
    """
    delta = difference.mean
    interval = _interval(difference.draws, delta.mean, difference.sentences)
    nats = {"delta": delta.mean, "gap": np.abs(delta.mean), "sd": delta.sd}
    columns: Columns = {
        **_both_units(nats | interval._asdict()),
        "sentences": difference.sentences,
        "orders": delta.seeds,
    }
    return with_draws(_tidy(checkpoints, [columns]), difference.draws)


def change_table(gap: pl.DataFrame) -> pl.DataFrame:
    """Decrease of the gap |Δ| in percent, from the first and from the previous step.

    Releases are excluded.
    """
    now = pl.col("gap_nats")
    series = gap.filter(pl.col("step").is_not_null())
    return series.select(
        *CHECKPOINT,
        from_first=_percent(now.first().over("model", "run"), now),
        from_previous=_percent(now.shift(1).over("model", "run"), now),
    )


def _percent(before: pl.Expr, after: pl.Expr) -> pl.Expr:
    change = 100 * (before - after) / before
    return pl.when(before != 0).then(change).otherwise(float("nan"))


def gap_changes(gap: pl.DataFrame, *, seed: int) -> pl.DataFrame:
    """Change points of Δ in each run, scaled, after its untrained phase; releases are left out.

    `gap` is that of `gap_table`.
    """
    steps = gap.filter(pl.col("step").is_not_null())
    courses = []
    for (model, run), part in steps.group_by("model", "run", maintain_order=True):
        draws = stacked_draws(part)
        few = (part["sentences"] < FEWEST_CLUSTERS).any()
        keys = {"model": str(model), "run": str(run)}
        values = scaled(part["delta_nats"].to_numpy())
        courses.append(
            Course(keys, part["step"].to_list(), values, scaled(draws[:0] if few else draws))
        )
    return changes_of(courses, ["model", "run"], seed=seed)


def gender_tests(
    data: ScoreArrays, parts: Floats, delta: Difference, ranks: Sequence[Sample], *, unit: Unit
) -> pl.DataFrame:
    """Male (sample 1) against female (sample 2) gold prompts, for JSD-P and for Average Rank.

    Mann–Whitney is the published test. Wilcoxon, which is not in the paper, pairs the pro- and
    anti-stereotyped versions of a sentence and tests male minus female. The columns `difference`
    and `rank_biserial` are female minus male. `delta` is the difference of JSD-P in nats, `ranks`
    are samples by gold option. Rows are not yet `adjusted`.
    """
    male, female = data.gold == 0, data.gold == 1
    parts = with_ties(parts, data.inexact)
    pairs = data.axes.pairs
    measures = {
        "jsd_p": (parts[..., 0], parts[..., 1], in_scale(delta)),
        "average_rank": (data.ranks, data.ranks, gender_difference(ranks[0], ranks[1])),
    }
    tables = []
    for measure, (first, second, difference) in measures.items():
        a = observations(first[:, :, male], unit=unit)
        b = observations(second[:, :, female], unit=unit)
        d = observations(first[:, :, pairs[0]] - second[:, :, pairs[1]], unit=unit)
        base = data.checkpoints.with_columns(measure=pl.lit(measure))
        tables += _tests(base, difference, a, b, d, unit, towards=-1)
    return pl.concat(tables)


def model_tests(
    data: ScoreArrays, parts: Floats, counts: GoldCounts, *, unit: Unit
) -> pl.DataFrame | None:
    """JSD-P of two models on neutral prompts, for the male and for the female option.

    Checkpoints of the same run name and step are compared, on the prompts that both have;
    Wilcoxon pairs the same prompt. None without two models that share a checkpoint. Rows are not
    yet `adjusted`.
    """
    shared = shared_checkpoints(data.checkpoints)
    if shared.is_empty():
        return None
    neutral = data.gold == 2
    parts = with_ties(parts, data.inexact)
    clusters = data.axes.clusters[neutral]
    tables = []
    for option in (0, 1):
        first, second = (
            parts[shared[side].to_numpy()][:, :, neutral, option] for side in ("first", "second")
        )
        difference = first - second  # NaN where either model lacks the prompt
        means = Difference(
            seed_mean(mean_present(difference, axis=2)),
            bootstrap_means(difference, counts[2]),
            cluster_numbers(difference, clusters),
        )
        first, second = (np.where(np.isnan(difference), np.nan, x) for x in (first, second))
        a, b, d = (observations(values, unit=unit) for values in (first, second, difference))
        base = shared.select("model", "other_model", "run", "step", option=pl.lit(LABELS[option]))
        tables += _tests(base, in_scale(means), a, b, d, unit, towards=1)
    return pl.concat(tables)


def shared_checkpoints(checkpoints: pl.DataFrame) -> pl.DataFrame:
    """Checkpoints that two models share, with the row number in each.

    Empty unless there are exactly two models.
    """
    models = checkpoints["model"].unique().sort().to_list()
    rows = checkpoints.with_row_index("first")
    one, other = (rows.filter(pl.col("model") == model) for model in (models[0], models[-1]))
    second = other.select("run", "step", other_model="model", second="first")
    both = one.join(
        second, on=["run", "step"], how="inner", nulls_equal=True, maintain_order="left"
    )
    return both if len(models) == 2 else both.clear()


def _tests(
    base: pl.DataFrame,
    difference: Difference,
    a: Floats,
    b: Floats,
    d: Floats,
    unit: Unit,
    *,
    towards: Literal[1, -1],
) -> list[pl.DataFrame]:
    """Both tests at the checkpoints of `base`.

    `towards` is the sign of `rank_biserial`: 1 for first minus second sample.
    """
    rows = with_draws(base, difference.draws).hstack(
        [
            pl.Series("difference", difference.mean.mean),
            pl.Series("sentences", difference.sentences),
        ]
    )
    results = (
        (MANN_WHITNEY, "published", mann_whitney(a, b, missing="omit")),
        (WILCOXON, "ours", wilcoxon(d, missing="omit")),
    )
    return [
        rows.hstack(
            [
                *(
                    pl.Series(name, [text] * len(rows), dtype=pl.String)
                    for name, text in (("test", test), ("origin", origin), ("unit", unit))
                ),
                pl.Series("statistic", result.statistic),
                pl.Series("p", result.p),
                pl.Series("n1", result.n1.astype(np.int64)),
                pl.Series("n2", result.n2.astype(np.int64)),
                pl.Series("effect", result.effect),
                pl.Series("rank_biserial", towards * rank_biserial(result.effect) + 0.0),  # no −0
                pl.Series("significant", result.p < SIGNIFICANCE),
            ]
        )
        for test, origin, result in results
    ]


def adjusted(rows: pl.DataFrame, *, group: str) -> pl.DataFrame:
    """Tests of all checkpoints, sorted, with the correction for their number and the baseline.

    A family of tests is a model, run, `group` and test.
    """
    rows = rows.sort(CHECKPOINT, nulls_last=True, maintain_order=True)
    rows = with_baseline(rows, group=(group, "test")).with_row_index("at")
    p, p_bh = rows["p"].to_numpy(), np.full(len(rows), np.nan)
    for (at,) in rows.group_by("model", "run", group, "test").agg("at").select("at").rows():
        p_bh[at] = benjamini_hochberg(p[at])
    tests = rows.with_columns(p_bh=p_bh, significant_bh=p_bh < SIGNIFICANCE)
    first = [name for name in rows.columns if name != "at" and name not in RESULT]
    return tests.select(*first, *RESULT)


TIE_DECIMALS = 12
"""Decimals to which values are rounded before a rank test. Another option order can change the last
bit of a JSD-P (about 1e-16 of at most 0.35 nats). Rounding makes such values ties. Average Ranks
keep their order."""
ROUNDED_LOGITS = 1e-6
"""Largest difference of two JSD-P values (nats) that counts as a tie at checkpoints with inexact
scores. Rounding a float32 logit below 64 changes it by at most 1.9e-6, which changes JSD-P by at
most 0.17 times as much."""


def with_ties(parts: Floats, inexact: NDArray[np.bool_]) -> Floats:
    """JSD-P (c, s, p, o) whose values within `ROUNDED_LOGITS` of the one below are equal to it.

    Only at checkpoints with `inexact` (c, s, p) scores; at others equal logits give equal values.
    """
    out = parts.copy()
    for at in np.flatnonzero(inexact.any(axis=(1, 2))):
        values = parts[at].ravel()
        order = np.argsort(values)  # NaN last, and apart: a comparison with it is false
        ascending = values[order]
        same = np.diff(ascending, prepend=-np.inf) <= ROUNDED_LOGITS
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        values[order] = ascending[first]
        out[at] = values.reshape(parts[at].shape)
    return out


def observations(values: Floats, *, unit: Unit) -> Floats:
    """(c, s, p) to (c, n): the values that a test takes as independent; NaN stays missing.

    Rounded to `TIE_DECIMALS`: tests are about ranks, and what differs by rounding is a tie.
    """
    if unit == "prompt":
        values = mean_present(values, axis=1)
    elif unit == "seed":
        values = mean_present(values, axis=2)
    else:
        values = values.reshape(len(values), -1)
    return np.round(values, TIE_DECIMALS)


def _interval(draws: Floats, mean: Floats, sentences: Codes) -> Interval:
    """Interval of the draws; NaN where there is no estimate, or of too few sentences."""
    low, high = percentile_interval(draws, clusters=sentences)
    return Interval(
        np.where(np.isnan(mean), np.nan, low),
        np.where(np.isnan(mean), np.nan, high),
    )


def _both_units(nats: Mapping[str, Floats]) -> dict[str, Floats]:
    columns = {f"{name}_nats".lstrip("_"): values for name, values in nats.items()}
    return columns | {f"{name}_scaled".lstrip("_"): scaled(v) for name, v in nats.items()}


def _tidy(checkpoints: pl.DataFrame, groups: Sequence[Columns]) -> pl.DataFrame:
    """Checkpoint after checkpoint, the groups of each in the order given."""
    # This builds many tables of about ten rows. A Polars query for each (7 ms) would take a third
    # of the run time.
    rows = checkpoints[np.repeat(np.arange(len(checkpoints)), len(groups))]
    return rows.hstack(
        [
            pl.Series(name, _in_turn([group[name] for group in groups], len(checkpoints)))
            for name in groups[0]
        ]
    )


def _in_turn(values: Sequence[str | np.ndarray], checkpoints: int) -> list[str] | np.ndarray:
    """Values by checkpoint, then by group. Texts repeat for every checkpoint."""
    texts = [value for value in values if isinstance(value, str)]
    return texts * checkpoints if texts else np.stack(values, axis=1).reshape(-1)
