"""What the paper needs beyond the measures: parts of JSD-P, changes, tests, and counts of ties."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import HALF_LN2, Floats
from logitbank.analysis.frames.gender_answers import LABELS, Answers, part_name
from logitbank.analysis.frames.items import array_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.curve import Course
from logitbank.analysis.results.curve import change_table as changes_of
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, bootstrap_means, cluster_counts
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.significance import (
    SIGNIFICANCE,
    TestResult,
    benjamini_hochberg,
    mann_whitney,
    mean_present,
    rank_biserial,
    wilcoxon,
)
from logitbank.analysis.stats.summary import summarise

SEED = 0
AT_ONCE = 100
"""Checkpoints that are tested at once."""
MANN_WHITNEY, WILCOXON = "mann_whitney", "wilcoxon"
BASELINE_COLUMNS = (
    *("rank_biserial", "difference", "low", "high", "clusters", "baseline_step"),
    *("baseline_rank_biserial", "baseline_difference"),
    *("from_baseline", "from_baseline_low", "from_baseline_high"),
)
RESULT = (
    *("test", "origin", "statistic", "p", "p_bh", "n1", "n2", "effect"),
    *("significant", "significant_bh", *BASELINE_COLUMNS),
)
"""Columns of a test. `origin` is `published`, or `ours` if the test is not in the paper. `p_bh` is
adjusted over the checkpoints of a run (Benjamini–Hochberg; not in the paper). `significant` is
p < 0.01, the published rule. Differences are of means, and point as the rank-biserial correlation:
female minus male, or the first model minus the other one. An untrained model also prefers some
tokens to others, so every test has the same difference at the first checkpoint."""
RANK_DIFFERENCE = Measure(
    name="average_rank", plus=(part_name("rank", "female"),), minus=(part_name("rank", "male"),)
)
PARTS = {
    (gold, option): Measure(name=f"{gold} {option}", plus=(part_name(f"jsd_p {option}", gold),))
    for gold in LABELS
    for option in LABELS
}
"""JSD-P of each option for each correct answer."""


def jsd_table(summary: pl.DataFrame) -> pl.DataFrame:
    """Mean JSD-P of options over the prompts of gold options, from a summary of `PARTS`."""
    pairs = {measure.key: pair for pair, measure in PARTS.items()}
    columns = {
        name: pl.col("measure").replace_strict({k: v[at] for k, v in pairs.items()})
        for at, name in enumerate(("gold", "option"))
    }
    return summary.select(
        *CHECKPOINT, **columns, jsd_p="value", jsd_p_nats=HALF_LN2 * pl.col("value"),
    ).hstack(summary.select("sd", "low", "high", "items", "clusters", "missing"))  # fmt: skip


def count_table(answers: Answers) -> pl.DataFrame:
    """How many prompts and orders have a score, and which ranks are tied or lower bounds."""
    parts = []
    for at, gold in enumerate(LABELS):
        scored = ~np.isnan(answers.values("first", gold))
        counts = {
            "prompts": scored.any(axis=1).sum(axis=1), "orders": scored.any(axis=2).sum(axis=1),
            "tied": answers.tied[:, at], "inexact": answers.inexact[:, at],
        }  # fmt: skip
        parts.append(answers.items.checkpoints.with_columns(gold=pl.lit(gold), **counts))
    return pl.concat(parts)


def change_table(gap: pl.DataFrame) -> pl.DataFrame:
    """Decrease of the gap |Δ| in percent, from the first and from the previous step.

    Releases are excluded.
    """
    now = pl.col("delta").abs()
    series = gap.filter(pl.col("step").is_not_null())
    return series.select(
        *CHECKPOINT,
        from_first=_percent(now.first().over("model", "run"), now),
        from_previous=_percent(now.shift(1).over("model", "run"), now),
    )


def _percent(before: pl.Expr, after: pl.Expr) -> pl.Expr:
    change = 100 * (before - after) / before
    return pl.when(before != 0).then(change).otherwise(float("nan"))


def gap_changes(draws: Sequence[tuple[pl.DataFrame, Floats]], gap: pl.DataFrame) -> pl.DataFrame:
    """Change points of Δ in each run, scaled, after its untrained phase; releases are left out.

    `draws` are those of `gap_draws` at some checkpoints each, `gap` has the measure `DELTA`.
    """
    places = pl.concat(checkpoints for checkpoints, _ in draws).with_row_index("at")
    resampled = np.concatenate([each for _, each in draws], axis=1)
    steps = gap.join(places, on=CHECKPOINT, maintain_order="left")  # no release, whose step is null
    courses = []
    for (model, run), part in steps.group_by("model", "run", maintain_order=True):
        few = (part["clusters"] < FEWEST_CLUSTERS).any()
        own = resampled[:0] if few else resampled[:, part["at"].to_numpy()]
        keys = {"model": str(model), "run": str(run)}
        courses.append(Course(keys, part["step"].to_list(), part["delta"].to_numpy(), own))
    return changes_of(courses, ["model", "run"])


def gap_draws(answers: Answers, resamples: int) -> tuple[pl.DataFrame, Floats]:
    """Checkpoints, and (b, c) Δ of resampled sentences, scaled.

    The sentences are the same at every checkpoint: a change point is no mean.
    """
    checkpoints = answers.items.checkpoints
    if not resamples:
        return checkpoints, np.empty((0, len(checkpoints)))
    clusters = answers.cells.prompts["cluster"].unique().sort()
    counts = cluster_counts(len(clusters), resamples=resamples, seed=SEED)
    male, female = (
        bootstrap_means(
            answers.values(f"jsd_p {gold}", gold),
            counts[:, clusters.search_sorted(answers.prompts(gold)["cluster"]).to_numpy()],
        )
        for gold in LABELS[:2]
    )
    return checkpoints, female - male


class Tested(NamedTuple):
    """Both tests at some checkpoints."""

    mann_whitney: TestResult
    wilcoxon: TestResult


def tested(first: Floats, second: Floats, paired: Floats) -> Tested:
    """The tests of two samples, (c, s, n1) and (c, s, n2), and differences of pairs (c, s, n)."""
    one, other, differences = map(observations, (first, second, paired))
    return Tested(mann_whitney(one, other), wilcoxon(differences))


def gender_results(answers: Answers) -> dict[str, list[Tested]]:
    """The tests of `gender_tests` by measure, of a few checkpoints each."""
    one, other = answers.pairs
    jsd_p = [part_name(f"jsd_p {gold}", gold) for gold in LABELS[:2]]
    ranks = [part_name("rank", gold) for gold in LABELS[:2]]

    def tests(male: Floats, female: Floats) -> Tested:
        return tested(male, female, male[:, :, one] - female[:, :, other])

    blocks = [*_blocks(len(answers.items.checkpoints))]
    return {
        "jsd_p": [tests(*with_ties(answers, jsd_p, rows)) for rows in blocks],
        "average_rank": [tests(*(answers.part(name, rows) for name in ranks)) for rows in blocks],
    }


def gender_tests(
    checkpoints: pl.DataFrame,
    results: Sequence[Mapping[str, Sequence[Tested]]],
    means: Mapping[str, pl.DataFrame],
) -> pl.DataFrame:
    """Male (sample 1) against female (sample 2) gold prompts, for JSD-P and for Average Rank.

    Mann–Whitney is the published test. Wilcoxon, which is not in the paper, pairs the pro- and
    anti-stereotyped versions of a sentence and tests male minus female. The columns `difference`
    and `rank_biserial` are female minus male. `results` are those of `gender_results` at all
    checkpoints, and `means` by measure summaries of the difference.
    """
    tables = [
        each
        for name, summary in means.items()
        for each in _tests(
            checkpoints.with_columns(measure=pl.lit(name)),
            summary,
            [each for found in results for each in found[name]],
            towards=-1,
        )
    ]
    return adjusted(pl.concat(tables, how="vertical"), "measure")


def model_tests(answers: Answers, *, whole: bool) -> pl.DataFrame:
    """JSD-P of two models on neutral prompts, for the male and for the female option.

    Checkpoints of the same run name and step are compared, on the prompts that both have;
    Wilcoxon pairs the same prompt. No rows without two models that share a checkpoint, and for
    answers that are not the `whole`: those of two models are.
    """
    shared = _shared_checkpoints(answers.items.checkpoints)
    shared = shared if whole else shared.clear()
    first, second = (shared[side].to_numpy() for side in ("first", "second"))
    tables = []
    for option in LABELS[:2]:
        name = part_name(f"jsd_p {option}", LABELS.neutral)
        own = answers.columns[name]
        # NaN where either model lacks the prompt.
        moved = answers.items.values[first, own] - answers.items.values[second, own]
        items = array_items(shared, answers.items.axes[own], moved)
        found = []
        for rows in _blocks(len(shared)):
            (one,), (other,) = (with_ties(answers, [name], side[rows]) for side in (first, second))
            paired = one - other
            one, other = (np.where(np.isnan(paired), np.nan, each) for each in (one, other))
            found.append(tested(one, other, paired))
        named = shared.drop("first", "second").with_columns(option=pl.lit(option))
        means = summarise(items, [Measure(name=option, plus=(name,))])
        tables += _tests(named, means, found, towards=1)
    return adjusted(pl.concat(tables), "other_model", "option")


def _shared_checkpoints(checkpoints: pl.DataFrame) -> pl.DataFrame:
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


def _blocks(checkpoints: int) -> Iterator[Codes]:
    """Numbers of checkpoints that are tested at once."""
    for start in range(0, max(1, checkpoints), AT_ONCE):
        yield np.arange(start, min(start + AT_ONCE, checkpoints))


def _tests(
    checkpoints: pl.DataFrame,
    means: pl.DataFrame,
    blocks: Sequence[Tested],
    *,
    towards: Literal[1, -1],
) -> list[pl.DataFrame]:
    """Both tests at the checkpoints, beside the summary of the difference of means there.

    `towards` is the sign of `rank_biserial`: 1 for first minus second sample.
    """
    found = (
        (MANN_WHITNEY, "published", [each.mann_whitney for each in blocks]),
        (WILCOXON, "ours", [each.wilcoxon for each in blocks]),
    )
    columns = [name for name in means.columns if name in (*CHECKPOINT, *BASELINE_COLUMNS)]
    differences = means.select(*columns, difference="value")
    tables = []
    for test, origin, results in found:
        statistic, p, n1, n2, effect = (np.concatenate(each) for each in zip(*results, strict=True))
        tested = checkpoints.with_columns(
            statistic=statistic, p=p, n1=n1.astype(np.int64), n2=n2.astype(np.int64),
            effect=effect, rank_biserial=towards * rank_biserial(effect) + 0.0,  # no −0
            significant=p < SIGNIFICANCE, test=pl.lit(test), origin=pl.lit(origin),
        )  # fmt: skip
        tables.append(
            tested.join(differences, on=CHECKPOINT, nulls_equal=True, maintain_order="left")
        )
    return tables


def adjusted(rows: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Tests of all checkpoints, sorted, with the correction for their number and the baseline.

    A family of tests is a model, run, `names` and test.
    """
    family = ["model", "run", *names, "test"]
    rows = rows.sort(CHECKPOINT, nulls_last=True, maintain_order=True).with_row_index("at")
    p, p_bh = rows["p"].to_numpy(), np.full(len(rows), np.nan)
    for (at,) in rows.group_by(family).agg("at").select("at").rows():
        p_bh[at] = benjamini_hochberg(p[at])
    first = pl.col("step").eq_missing(pl.col("baseline_step"))
    tests = rows.with_columns(
        p_bh=pl.Series(p_bh), significant_bh=pl.Series(p_bh < SIGNIFICANCE),
        baseline_rank_biserial=pl.col("rank_biserial").filter(first).first().over(family),
        baseline_difference=pl.col("difference").filter(first).first().over(family),
    )  # fmt: skip
    return tests.select(
        "model",
        *(n for n in names if n == "other_model"),
        "run",
        "step",
        *(n for n in names if n != "other_model"),
        *RESULT,
    )


TIE_DECIMALS = 12
"""Decimals to which values are rounded before a rank test. Another option order can change the last
bit of a JSD-P (about 1e-16 of at most 0.35 nats). Rounding makes such values ties. Average Ranks
keep their order."""
ROUNDED_LOGITS = 1e-6
"""Largest difference of two JSD-P values (nats) that counts as a tie at checkpoints with inexact
scores. Rounding a float32 logit below 64 changes it by at most 1.9e-6, which changes JSD-P by at
most 0.17 times as much."""


def with_ties(answers: Answers, names: Sequence[str], rows: Codes) -> list[Floats]:
    """JSD-P in nats of these parts at these checkpoints, (c, s, n).

    At checkpoints with inexact scores, values within `ROUNDED_LOGITS` of the one below are equal
    to it; at others equal logits give equal values.
    """
    parts = [HALF_LN2 * answers.part(name, rows) for name in names]
    every = [own for name, own in answers.columns.items() if name.startswith("jsd_p")]
    for at, row in enumerate(rows):
        if not answers.inexact[row].any():
            continue
        values = HALF_LN2 * np.concatenate([answers.items.values[row, own] for own in every])
        order = np.argsort(values)  # NaN last, and apart: a comparison with it is false
        ascending = values[order]
        same = np.diff(ascending, prepend=-np.inf) <= ROUNDED_LOGITS
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        values[order] = ascending[first]
        tied = np.empty(answers.items.values.shape[1])
        tied[np.concatenate([np.arange(own.start, own.stop) for own in every])] = values
        for name, part in zip(names, parts, strict=True):
            part[at] = tied[answers.columns[name]].reshape(part[at].shape)
    return parts


def observations(values: Floats) -> Floats:
    """(c, s, p) to (c, p): the mean of each prompt over its orders, which are not independent.

    Rounded to `TIE_DECIMALS`: tests are about ranks, and what differs by rounding is a tie.
    """
    return np.round(mean_present(values, axis=1), TIE_DECIMALS)
