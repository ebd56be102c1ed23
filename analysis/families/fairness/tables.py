"""The tables of fairness, from the answers of all checkpoints: means, intervals and tests."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import polars as pl
from polars import selectors

from logitbank.analysis.families.fairness import DELTA, RANKS
from logitbank.analysis.frames.expressions import HALF_LN2, Floats
from logitbank.analysis.frames.gender_answers import JSD_P, Answers, part_name
from logitbank.analysis.frames.items import Items, array_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.score_arrays import LABELS
from logitbank.analysis.results.curve import Course
from logitbank.analysis.results.curve import change_table as changes_of
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, bootstrap_means, cluster_counts
from logitbank.analysis.stats.measure import Measure
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
from logitbank.analysis.stats.summary import summarise

SEED = 0
MANN_WHITNEY, WILCOXON = "mann_whitney", "wilcoxon"
BASELINE_COLUMNS = (
    *("rank_biserial", "difference", "low", "high", "sentences", "baseline_step"),
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
PARTS = tuple(
    Measure(name=gold, group=label, plus=(part_name(option, gold),))
    for gold in LABELS
    for label, option in zip(LABELS, JSD_P, strict=True)
)
"""JSD-P of each option for each correct answer."""


def coverage(answers: Answers) -> pl.DataFrame:
    """Prompts, option orders and missing cells (prompt × order) per checkpoint."""
    checkpoints = answers.items.checkpoints
    scored = np.concatenate([answers.scored(gold) for gold in LABELS], axis=2)
    whole = [answers.expected[model] for model in checkpoints["model"]]
    return checkpoints.with_columns(
        prompts=scored.any(axis=1).sum(axis=1),
        orders=scored.any(axis=2).sum(axis=1),
        missing=np.maximum(np.array(whole, np.int64) - scored.sum(axis=(1, 2)), 0),
    )


def rank_table(answers: Answers, summary: pl.DataFrame) -> pl.DataFrame:
    """Average Rank of the correct answer and its geometric mean, per gold option.

    The interval of a mean of very skewed ranks is too short. That of the geometric mean rank, t on
    the scale of ln rank, covers 95 %.
    """
    log_ranks, measures = _log_ranks(answers)
    geometric = summarise(log_ranks, measures, changes=False)
    ranks = _of(answers, summary, RANKS, "gold").with_columns(average_rank="value")
    own = [each for each in PARTS if each.name == each.group]
    sentences = _of(answers, summary, own, "gold", "option")["clusters"].alias("sentences")
    present = [answers.scored(gold) for gold in LABELS]
    counts = {
        "prompts": [each.any(axis=1).sum(axis=1) for each in present],
        "orders": [each.any(axis=2).sum(axis=1) for each in present],
    }
    return ranks.select(
        *CHECKPOINT, "gold", "average_rank", "sd", "low", "high"
    ).hstack(
        _of(answers, geometric, measures, "gold").select(
            geometric_rank="value", geometric_low="low", geometric_high="high"
        )
    ).hstack([
        _by_row("prompts", counts["prompts"]), sentences,
        _by_row("orders", counts["orders"]),
        _by_row("tied", answers.tied.T), _by_row("inexact", answers.inexact.T),
    ])  # fmt: skip


def _log_ranks(answers: Answers) -> tuple[Items, list[Measure]]:
    """ln rank of each prompt, averaged over its orders, and their geometric means."""
    axes, values = [], []
    prompts = answers.layout.axes.prompts.select(
        item="prompt_id", cluster=pl.coalesce("sentence_id", "prompt_id")
    )
    for gold in LABELS:
        own = answers.layout.prompts[part_name("rank", gold)]
        axes.append(prompts[own].with_columns(part=pl.lit(gold)))
        values.append(mean_present(np.log(answers.values("rank", gold)), axis=1))
    items = array_items(answers.items.checkpoints, pl.concat(axes), np.concatenate(values, axis=1))
    return items, [Measure(name="log", group=gold, plus=(gold,), link="exp") for gold in LABELS]


def accuracy_table(answers: Answers) -> pl.DataFrame:
    """Accuracy per gold option, and for `all` prompts."""
    groups = {**{label: [label] for label in LABELS}, "all": list(LABELS)}
    prompts: list[np.ndarray] = []
    means: dict[str, list[SeedMean]] = {"top": [], "first": []}
    for labels in groups.values():
        for name, found in means.items():
            values = np.concatenate([answers.values(name, gold) for gold in labels], axis=2)
            found.append(seed_mean(mean_present(values, axis=2)))
        prompts.append((~np.isnan(values)).any(axis=1).sum(axis=1))
    table = _groups(answers, gold=list(groups))
    return table.hstack([
        _by_row("accuracy", [each.mean for each in means["top"]]),
        _by_row("sd", [each.sd for each in means["top"]]),
        _by_row("three_way_accuracy", [each.mean for each in means["first"]]),
        _by_row("three_way_sd", [each.sd for each in means["first"]]),
        _by_row("prompts", prompts),
    ])  # fmt: skip


def jsd_table(answers: Answers, summary: pl.DataFrame) -> pl.DataFrame:
    """Mean JSD-P of every option over the prompts of every gold option."""
    table = _of(answers, summary, PARTS, "gold", "option").with_columns(sentences="clusters")
    prompts = [answers.scored(gold).any(axis=1).sum(axis=1) for gold in LABELS for _ in LABELS]
    return table.select(
        *CHECKPOINT, "gold", "option", *_both_units("jsd_p", "value"), _by_row("prompts", prompts),
        "sentences",
    )  # fmt: skip


def gap_table(answers: Answers, summary: pl.DataFrame) -> pl.DataFrame:
    """JSD-P(female | gold female) − JSD-P(male | gold male), order by order, then averaged."""
    table = _of(answers, summary, [DELTA]).with_columns(gap=pl.col("value").abs())
    male, female = (answers.scored(gold).any(axis=2) for gold in ("male", "female"))
    return table.select(
        *CHECKPOINT, *_both_units("delta", "value", "gap"), sentences="clusters",
        orders=pl.Series((male & female).sum(axis=1)),
    )  # fmt: skip


def gap_draws(answers: Answers, resamples: int) -> Floats:
    """(b, c): Δ of resampled sentences, scaled; the same sentences at every checkpoint.

    Change points and a trade-off need them: they are no means.
    """
    if not resamples:
        return np.empty((0, len(answers.items.checkpoints)))
    clusters = answers.layout.axes.clusters
    counts = cluster_counts(clusters.max() + 1, resamples=resamples, seed=SEED)
    male, female = (
        bootstrap_means(
            answers.values(f"jsd_p {gold}", gold),
            counts[:, clusters[answers.layout.prompts[part_name("rank", gold)]]],
        )
        for gold in ("male", "female")
    )
    return female - male


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


def gap_changes(gap: pl.DataFrame, draws: Floats) -> pl.DataFrame:
    """Change points of Δ in each run, scaled, after its untrained phase; releases are left out.

    `gap` is that of `gap_table`, with draws (b, c) or none.
    """
    steps = gap.with_row_index("at").filter(pl.col("step").is_not_null())
    courses = []
    for (model, run), part in steps.group_by("model", "run", maintain_order=True):
        few = (part["sentences"] < FEWEST_CLUSTERS).any()
        own = draws[:, part["at"].to_numpy()]
        keys = {"model": str(model), "run": str(run)}
        values = part["delta"].to_numpy()
        courses.append(Course(keys, part["step"].to_list(), values, own[:0] if few else own))
    return changes_of(courses, ["model", "run"], seed=SEED)


def gender_tests(answers: Answers, summary: pl.DataFrame) -> pl.DataFrame:
    """Male (sample 1) against female (sample 2) gold prompts, for JSD-P and for Average Rank.

    Mann–Whitney is the published test. Wilcoxon, which is not in the paper, pairs the pro- and
    anti-stereotyped versions of a sentence and tests male minus female. The columns `difference`
    and `rank_biserial` are female minus male.
    """
    own = [part_name(f"jsd_p {gold}", gold) for gold in LABELS[:2]]
    pairs = answers.pairs
    samples = {
        "jsd_p": (DELTA, [*with_ties(answers, own).values()]),
        "average_rank": (RANK_DIFFERENCE, [answers.values("rank", gold) for gold in LABELS[:2]]),
    }
    tables = []
    for name, (measure, (male, female)) in samples.items():
        paired = male[:, :, pairs[0]] - female[:, :, pairs[1]]
        a, b, d = (observations(values) for values in (male, female, paired))
        base = _of(answers, summary, [measure]).with_columns(measure=pl.lit(name))
        tables += _tests(base, a, b, d, towards=-1)
    return adjusted(pl.concat(tables), "measure")


def model_tests(answers: Answers) -> pl.DataFrame | None:
    """JSD-P of two models on neutral prompts, for the male and for the female option.

    Checkpoints of the same run name and step are compared, on the prompts that both have;
    Wilcoxon pairs the same prompt. None without two models that share a checkpoint.
    """
    shared = _shared_checkpoints(answers.items.checkpoints)
    if shared.is_empty():
        return None
    first, second = (shared[side].to_numpy() for side in ("first", "second"))
    names = [part_name(f"jsd_p {option}", LABELS.neutral) for option in LABELS[:2]]
    jsd_p = with_ties(answers, names)
    tables = []
    for option, name in zip(LABELS, names, strict=False):
        own = answers.layout.columns[name]
        # NaN where either model lacks the prompt.
        moved = answers.items.values[first, own] - answers.items.values[second, own]
        items = array_items(shared, answers.items.axes[own], moved)
        table = summarise(items, [Measure(name=option, plus=(name,))])
        base = shared.join(table, on=CHECKPOINT, nulls_equal=True, maintain_order="left")
        values = [jsd_p[name][rows] for rows in (first, second)]
        difference = values[0] - values[1]
        both = [np.where(np.isnan(difference), np.nan, each) for each in values]
        a, b, d = (observations(each) for each in (*both, difference))
        base = base.with_columns(option=pl.lit(option))
        tables += _tests(base, a, b, d, towards=1)
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


def _tests(
    base: pl.DataFrame, a: Floats, b: Floats, d: Floats, *, towards: Literal[1, -1]
) -> list[pl.DataFrame]:
    """Both tests at the checkpoints of `base`, which has the summary of the difference.

    `towards` is the sign of `rank_biserial`: 1 for first minus second sample.
    """
    rows = base.with_columns(difference="value", sentences="clusters")
    results = (
        (MANN_WHITNEY, "published", mann_whitney(a, b)),
        (WILCOXON, "ours", wilcoxon(d)),
    )
    return [
        rows.with_columns(
            pl.Series("statistic", result.statistic),
            pl.Series("p", result.p),
            pl.Series("n1", result.n1.astype(np.int64)),
            pl.Series("n2", result.n2.astype(np.int64)),
            pl.Series("effect", result.effect),
            pl.Series("rank_biserial", towards * rank_biserial(result.effect) + 0.0),  # no −0
            pl.Series("significant", result.p < SIGNIFICANCE),
            test=pl.lit(test),
            origin=pl.lit(origin),
        )
        for test, origin, result in results
    ]


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


def with_ties(answers: Answers, names: Sequence[str]) -> dict[str, Floats]:
    """JSD-P in nats of these parts, (c, s, n).

    At checkpoints with inexact scores, values within `ROUNDED_LOGITS` of the one below are equal
    to it; at others equal logits give equal values.
    """
    columns = answers.layout.columns
    parts = {name: HALF_LN2 * answers.values(*name.split(" | ")) for name in names}
    every = [own for name, own in columns.items() if name.startswith("jsd_p")]
    for at in np.flatnonzero(answers.inexact.any(axis=1)):
        values = HALF_LN2 * np.concatenate([answers.items.values[at, own] for own in every])
        order = np.argsort(values)  # NaN last, and apart: a comparison with it is false
        ascending = values[order]
        same = np.diff(ascending, prepend=-np.inf) <= ROUNDED_LOGITS
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        values[order] = ascending[first]
        tied = answers.items.values[at].copy()
        tied[np.concatenate([np.arange(own.start, own.stop) for own in every])] = values
        for name, each in parts.items():
            each[at] = tied[columns[name]].reshape(each[at].shape)
    return parts


def observations(values: Floats) -> Floats:
    """(c, s, p) to (c, p): the mean of each prompt over its orders, which are not independent.

    Rounded to `TIE_DECIMALS`: tests are about ranks, and what differs by rounding is a tie.
    """
    return np.round(mean_present(values, axis=1), TIE_DECIMALS)


def _both_units(*names: str) -> list[pl.Expr]:
    """Columns scaled and in nats: a name, the number, and other columns; then its spread."""
    name, *columns = names
    texts = {columns[0]: name, **{c: c for c in [*columns[1:], "sd", "low", "high"]}}
    return [
        (pl.col(column) * factor).alias(f"{text}{unit}")
        for unit, factor in (("", 1.0), ("_nats", HALF_LN2))
        for column, text in texts.items()
    ]


def _groups(answers: Answers, **columns: Sequence[str]) -> pl.DataFrame:
    """Checkpoint after checkpoint, the groups of each in the order given."""
    groups = pl.DataFrame(dict(columns))
    return answers.items.checkpoints.join(groups, how="cross", maintain_order="left_right")


def _of(
    answers: Answers, summary: pl.DataFrame, measures: Sequence[Measure], *names: str
) -> pl.DataFrame:
    """The summary of some measures, with a row for each even where no prompt has that answer.

    `names` are the columns for the last parts of their names.
    """
    columns = {"measure": [each.key for each in measures]}
    for at, name in enumerate(names[::-1]):
        columns[name] = [(each.name, each.group)[1 - at] for each in measures]
    rows = _groups(answers, **columns).join(
        summary, on=[*CHECKPOINT, "measure"], how="left", nulls_equal=True, maintain_order="left"
    )
    return rows.with_columns(
        selectors.float().fill_null(float("nan")), pl.col("clusters").fill_null(0),
        baseline_step=pl.coalesce("baseline_step", pl.col("step").first().over("model", "run")),
    )  # fmt: skip


def _by_row(name: str, groups: Iterable[np.ndarray]) -> pl.Series:
    """Values (c,) of each group as a column, by checkpoint, then by group."""
    return pl.Series(name, np.stack([*groups], axis=1).reshape(-1))
