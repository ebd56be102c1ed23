"""Fairness dynamics of gender prediction: Average Rank, accuracy, JSD-P and the gender gap.

Items in, tables out: measures of the answers of WinoBias, and what the paper needs beyond them.
After arXiv 2506.01709; every departure is named where it happens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from logitbank.analysis.families.fairness import (
    ACCURACIES,
    DELTA,
    FAMILY,
    GEOMETRIC_RANKS,
    RANKS,
    THREE_WAY,
)
from logitbank.analysis.families.fairness.tables import (
    PARTS,
    RANK_DIFFERENCE,
    SEED,
    change_table,
    count_table,
    gap_changes,
    gap_draws,
    gender_results,
    gender_tests,
    jsd_table,
    model_tests,
)
from logitbank.analysis.frames.gender_answers import (
    LABELS,
    answer_blocks,
    has_genders,
    read_winobias,
)
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import Measure, View
from logitbank.analysis.stats.summary import ALL, Summary, measures_table
from logitbank.errors import UsageError

SPECIFIED = {
    **CHECKPOINT_SCHEMA, "gold": pl.String,
    **dict.fromkeys(("probability", "low", "high"), pl.Float64),
    **dict.fromkeys(("prompts", "sentences", "missing"), pl.Int64),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fairness(Result):
    """Results of `fairness_metric`: tidy tables, one row per checkpoint and group.

    Every table begins with model, run and step; step is null for a release. JSD-P and Δ are scaled
    to [0, 1] and [−1, 1].
    """

    measures: pl.DataFrame
    """Every measure of the family, as `summarise` returns them: an item is a prompt in one option
    order, a cluster a sentence, and `sd` the deviation between option orders (ddof 1)."""
    jsd_parts: pl.DataFrame
    """Mean JSD-P for every gold × option, also in nats."""
    change: pl.DataFrame
    """Fairness increase in percent against the first and the previous step."""
    tests: pl.DataFrame
    """Male against female: the published Mann–Whitney test and our paired one, each beside its
    effect size and the difference from the first checkpoint."""
    comparison: pl.DataFrame
    """Two models on neutral prompts, likewise; no rows for one model, or more than two."""
    change_points: pl.DataFrame
    """Change points of delta: their steps, levels and p values against random walks."""
    counts: pl.DataFrame
    """Per gold option: prompts, option orders, and how many gold ranks are tied or inexact."""
    settings: Mapping[str, str | int | bool | None]
    """The choices that made these numbers."""
    specified: pl.DataFrame | None = None
    """Mean probability of " specified" after " not", per gold option and for `all`; t intervals
    clustered by sentence. None without the prompts that ask it."""

    gap = View(DELTA)
    average_rank = View(*RANKS, by="gold")
    geometric_rank = View(*GEOMETRIC_RANKS, by="gold")
    accuracy = View(*ACCURACIES, by="gold")
    three_way_accuracy = View(*THREE_WAY, by="gold")


def fairness_metric(scores: Scores, *, bootstrap: int = 1000) -> Fairness:
    """Every fairness table of a prompt set such as WinoBias.

    A checkpoint's numbers are over the prompts that the bank has for it; `missing` counts the
    others, under each order. All arithmetic is float64.

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
    measures = Summary(FAMILY.measures)
    ranks = Summary([RANK_DIFFERENCE])
    parts = Summary([*PARTS.values()], changes=False)
    checkpoints, counts, draws, tests = [], [], [], []
    source = scores.of(scores.sets[0])
    for answers in answer_blocks(source):
        for summary in (measures, ranks, parts):
            summary.add(answers.items)
        checkpoints.append(answers.items.checkpoints)
        counts.append(count_table(answers))
        draws.append(gap_draws(answers, bootstrap))
        tests.append(gender_results(answers))
    two = pl.concat(checkpoints)["model"].n_unique() == 2
    if two and len(tests) > 1:  # the prompts are those of more models, which have no scores
        answers = read_winobias(source)
    table = measures.table()
    gap = Fairness.gap.of(table)
    means = {"jsd_p": gap.rename({"delta": "value"}), "average_rank": ranks.table()}
    return Fairness(
        measures=table,
        jsd_parts=jsd_table(parts.table()),
        change=change_table(gap),
        tests=gender_tests(pl.concat(checkpoints), tests, means),
        comparison=model_tests(answers, whole=two),
        change_points=gap_changes(draws, gap),
        counts=pl.concat(counts).sort(CHECKPOINT, nulls_last=True, maintain_order=True),
        settings={"bootstrap": bootstrap, "seed": SEED},
        specified=specified_table(scores.of(*asked)) if (asked := scores.sets[1:]) else None,
    )


def read_items(source: Scores) -> Items:
    """Prompts in each option order: JSD-P (scaled), rank, and whether the answer is the first of
    the vocabulary and of the options. None for other options.
    """
    return read_winobias(source).items if has_genders(source) else gather_items([])


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
