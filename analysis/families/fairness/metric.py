"""Fairness dynamics of gender prediction: Average Rank, accuracy, JSD-P and the gender gap.

Frames in, frames out: the scan of a bank becomes a handful of tidy tables. After arXiv 2506.01709;
every departure is named where it happens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from logitbank.analysis.families.fairness import DELTA, FAMILY
from logitbank.analysis.families.fairness.tables import (
    PARTS,
    RANK_DIFFERENCE,
    RESULT,
    SEED,
    accuracy_table,
    change_table,
    coverage,
    gap_changes,
    gap_draws,
    gap_table,
    gender_tests,
    jsd_table,
    model_tests,
    rank_table,
)
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.gender_answers import (
    Answers,
    has_genders,
    read_winobias,
)
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.frames.score_arrays import LABELS
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.significance import prepare_tests
from logitbank.analysis.stats.summary import ALL, measures_table, summarise
from logitbank.errors import UsageError

SPECIFIED = {
    **dict.fromkeys(("model", "run"), pl.String), "step": pl.Int64, "gold": pl.String,
    **dict.fromkeys(("probability", "low", "high"), pl.Float64),
    **dict.fromkeys(("prompts", "sentences", "missing"), pl.Int64),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fairness(Result):
    """Results of `fairness_metric`: tidy tables, one row per checkpoint and group.

    Every table begins with model, run and step; step is null for a release. `low` and `high` are
    95 % t intervals clustered by sentence, NaN for fewer than ten of them (`sentences`); `sd` is
    the deviation between option orders (ddof 1).
    JSD-P and Δ are scaled to [0, 1] and [−1, 1]; columns that end in `_nats` are in nats.
    """

    measures: pl.DataFrame
    """Every measure of the family, as `summarise` returns them."""
    checkpoints: pl.DataFrame
    """Prompts and option orders of each checkpoint, and how many expected scores are missing."""
    average_rank: pl.DataFrame
    """Average Rank per gold option, with the number of tied and of inexact gold ranks; and the
    geometric mean rank, exp of the mean of ln rank, each prompt averaged over its orders first."""
    accuracy: pl.DataFrame
    """Gold token the only maximum over the vocabulary; `three_way_accuracy` over the options."""
    jsd_parts: pl.DataFrame
    """Mean JSD-P for every gold × option."""
    gap: pl.DataFrame
    """delta = JSD-P(female | gold female) − JSD-P(male | gold male), and its absolute value."""
    change: pl.DataFrame
    """Fairness increase in percent against the first and the previous step."""
    tests: pl.DataFrame
    """Male against female: the published Mann–Whitney test and our paired one, each beside its
    effect size and the difference from the first checkpoint."""
    comparison: pl.DataFrame
    """Two models on neutral prompts, likewise; no rows for one model, or more than two."""
    change_points: pl.DataFrame
    """Change points of delta: their steps, levels and p values against random walks."""
    settings: Mapping[str, str | int | bool | None]
    """The choices that made these numbers."""
    specified: pl.DataFrame | None = None
    """Mean probability of " specified" after " not", per gold option and for `all`; t intervals
    clustered by sentence. None without the prompts that ask it."""


def fairness_metric(
    scores: Scores,
    *,
    bootstrap: int = 1000,
) -> Fairness:
    """Every fairness table of a prompt set such as WinoBias.

    A checkpoint's numbers are over the prompts that the bank has for it; `checkpoints` counts
    the missing ones, under each order. All arithmetic is float64.

    Parameters
    ----------
    scores
        `read_scores(banks, "winobias")`. Two models are compared at the runs and steps that both
        have. A second prompt set asks what follows " not".
    bootstrap
        Number of resamples of the sentences, for the steps of changes of the gap; 0 for none.

    Raises
    ------
    UsageError
        Invalid columns, labels or arguments.
    BankError
        No rows, or a prompt without one of its options.

    References
    ----------
    arXiv 2506.01709, §2, App. B–D. Not in the paper: the competition rank, the scaled unit, the
    mean over option orders before the tests, ddof 1, and everything whose `origin` is `ours`.
    """
    if bootstrap < 0:
        raise UsageError(f"bootstrap {bootstrap} is negative: use 0 or more resamples.")
    prepare_tests()
    answers = read_winobias(scores.of(scores.sets[0]))
    measures = measures_table(answers.items, FAMILY.measures)
    summary = pl.concat([
        measures, summarise(answers.items, [RANK_DIFFERENCE]),
        summarise(answers.items, PARTS, changes=False),
    ])  # fmt: skip
    gap = gap_table(answers, summary)
    tests = gender_tests(answers, summary)
    comparison = model_tests(answers)
    if comparison is None:
        names = tests.clear().with_columns(other_model="model", option="measure")
        comparison = names.select("model", "other_model", "run", "step", "option", *RESULT)
    return Fairness(
        measures=measures,
        checkpoints=coverage(answers),
        average_rank=rank_table(answers, summary),
        accuracy=accuracy_table(answers),
        jsd_parts=jsd_table(answers, summary),
        gap=gap,
        change=change_table(gap),
        tests=tests,
        comparison=comparison,
        change_points=gap_changes(gap, gap_draws(answers, bootstrap)),
        settings={"bootstrap": bootstrap, "seed": SEED},
        specified=specified_table(scores.of(*asked)) if (asked := scores.sets[1:]) else None,
    )


def read_items(source: Scores) -> Items:
    """Prompts in each option order: JSD-P (scaled), rank, and whether the answer is the first of
    the vocabulary and of the options. None for other options.
    """
    return read_winobias(source).items if has_genders(source) else gather_items([])


def gap_and_draws(answers: Answers, resamples: int) -> tuple[pl.DataFrame, Floats]:
    """The table of Δ, and its draws (b, c)."""
    gap = gap_table(answers, summarise(answers.items, [DELTA], changes=False))
    return gap, gap_draws(answers, resamples)


def gendered_answers(jsd_parts: pl.DataFrame) -> pl.DataFrame:
    """The rows of JSD-P of the correct answer, for the answers male and female."""
    return jsd_parts.filter(pl.col("gold") == pl.col("option"), pl.col("gold") != LABELS.neutral)


def answer_jsd_p(answers: Answers) -> pl.DataFrame:
    """JSD-P of the answers male and female: model, run, step, group, value, low and high."""
    own = [each for each in PARTS if each.name == each.group != LABELS.neutral]
    table = gendered_answers(jsd_table(answers, summarise(answers.items, own, changes=False)))
    return table.select(
        *CHECKPOINT, pl.col("gold").alias("group"), pl.col("jsd_p").alias("value"), "low", "high"
    )


def specified_table(source: Scores) -> pl.DataFrame:
    """How probable " specified" is after " not", from prompts that end in it: rows of `SPECIFIED`.

    The answer to the question of each prompt is its column `gold`.
    """
    parts = source.map_prompts(
        lambda sums: sums.all_rows.select(
            *CHECKPOINT, "gold", item="prompt_id", cluster="sentence_id",
            value=pl.col("logprob").exp(),
        ),
        "gold", "sentence_id", family="winobias-not",
    )  # fmt: skip
    table = measures_table(gather_items(parts), [Measure(name="specified")]).sort(
        *CHECKPOINT, pl.col("gold").cast(pl.Enum([*LABELS, ALL])), nulls_last=True
    )
    renamed = table.with_columns(probability="value", prompts="items", sentences="clusters")
    return renamed.select(pl.col(name).cast(dtype) for name, dtype in SPECIFIED.items())
