"""LAMBADA: is the last word of a passage predicted, and how probable is it.

The word is scored token by token behind the passage and its own earlier tokens (teacher forcing).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.analysis.families.lambada import FAMILY
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import (
    CHECKPOINT,
    PromptSums,
    concat_sorted,
    greedy_match,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.harness import write_harness
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.summary import BASELINE, measures_table
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name, counted


@dataclass(frozen=True, slots=True)
class Lambada(Result):
    """Results of `lambada_metric`, one row per checkpoint; step is null for a release."""

    measures: pl.DataFrame
    """Every measure of the family, as `summarise` returns them."""
    lambada: pl.DataFrame
    """acc with its standard error and interval (Wilson, 95 %); perplexity per example with its
    standard error (delta method) and interval; examples; `tied` ones, whose last word shared the
    largest logit with another token and which count as wrong; `inexact` ones, whose rank is a
    bound. `from_baseline`, the difference of acc from the first checkpoint's, `baseline_step`, in
    pairs over the `common` examples."""
    checkpoints: pl.DataFrame
    """prompts that are there with all their tokens, and how many are missing."""
    settings: Mapping[str, str | int | float | bool | None]


class Examples(NamedTuple):
    """The examples of all checkpoints, from one reading."""

    items: Items
    """Two of each example: whether it is correct, and its log-probability."""
    counts: pl.DataFrame
    """model, run, step, tied, inexact."""
    coverage: pl.DataFrame
    """As `PromptSums.coverage`."""


def read_lambada(scores: Scores) -> Examples:
    """The examples of a prompt set, read once in a report.

    Raises
    ------
    UsageError
        Prompts that are no words after a passage.
    """

    def read() -> Examples:
        kind = [name for name in ("score_kind",) if name in scores.columns]
        parts = scores.map_prompts(_part, *kind, family=FAMILY.name, more=greedy_match())
        items, counts, coverage = zip(*parts, strict=True)
        return Examples(gather_items(items), pl.concat(counts), concat_sorted(coverage))

    return scores.cached("lambada", read)


def _part(examples: PromptSums) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The parts of `Examples` for a few checkpoints."""
    rows = examples.rows
    if "score_kind" in rows.columns and len(other := rows.filter(pl.col("score_kind") != "target")):
        raise UsageError(
            f"Prompt {other['prompt_id'][0]!r} is scored as {other['score_kind'][0]!r}, no word "
            f"after its passage ({len(other):,} such rows). Name a set of LAMBADA's with --prompts."
        )
    values = {"acc": pl.col("correct").cast(pl.Float64), "perplexity": pl.col("logprob")}
    items = pl.concat(
        examples.all_rows.select(*CHECKPOINT, item="prompt_id", part=pl.lit(part), value=value)
        for part, value in values.items()
    )
    counts = rows.group_by(CHECKPOINT).agg(pl.col("tied", "inexact").sum().cast(pl.Int64))
    return items, counts, examples.coverage


def read_items(scores: Scores) -> Items:
    """Whether each example is correct, and its log-probability."""
    return read_lambada(scores).items


def lambada_metric(scores: Scores) -> Lambada:
    r"""Accuracy and perplexity of LAMBADA at every checkpoint. All arithmetic is float64.

    An example is correct if every token of the word is the only maximum of its vocabulary row, so
    that greedy decoding writes that word. Standard error :math:`\sqrt{a(1-a)/(N-1)}`. Perplexity
    is :math:`\exp(-\frac1N\sum_n\sum_t\ln p_{nt})`: its mean is over examples, not over tokens.
    An example that a checkpoint has in part is left out there and counted as missing.

    Parameters
    ----------
    scores
        `read_scores(bank, "lambada")`.

    Raises
    ------
    UsageError, BankError
        As `read_lambada` and `Scores.frames`.

    References
    ----------
    Paperno et al. 2016; the OpenAI variant and the quantities of lm-evaluation-harness
    (`lambada_openai`: `acc`, `perplexity`). Not in the harness: a tie for the largest logit counts
    as wrong; the intervals.
    """
    examples = read_lambada(scores)
    measures = measures_table(examples.items, FAMILY.measures)
    summary = measures.filter(pl.col("items") > 0)
    accuracy = summary.filter(measure="acc").select(
        *CHECKPOINT, "low", "high", *BASELINE, acc="value", acc_stderr="stderr"
    )
    ends = {"perplexity": "value", "perplexity_stderr": "stderr", "perplexity_low": "low",
            "perplexity_high": "high"}  # fmt: skip
    table = summary.filter(measure="perplexity").select(*CHECKPOINT, **ends, examples="items")
    for more in (accuracy, examples.counts):
        table = table.join(more, on=CHECKPOINT, how="left", nulls_equal=True, maintain_order="left")
    return Lambada(
        measures=measures,
        lambada=table.select(
            *CHECKPOINT, "acc", "acc_stderr", "low", "high", *ends, "examples", "tied", "inexact",
            *BASELINE,
        ),
        checkpoints=examples.coverage,
        settings={"intervals": "Wilson for acc, t for the mean of ln p, 95 %"},
    )  # fmt: skip


def write_results(result: Lambada, folder: Path | str) -> None:
    """Write result files of lm-evaluation-harness, one per checkpoint.

    Raises
    ------
    UsageError
        An expected example has no score at a checkpoint; or as `write_harness`.
    """
    steps = result.checkpoints.filter(pl.col("step").is_not_null())
    steps = steps.with_columns(expected=pl.col("prompts") + pl.col("missing"))
    incomplete = steps.filter(pl.col("missing") > 0)
    if len(incomplete):
        row = incomplete.row(0, named=True)
        raise UsageError(
            f"{row['prompts']:,} of {counted(row['expected'], 'example')} are scored at "
            f"{checkpoint_name(row)} ({len(incomplete):,} of {counted(len(steps), 'checkpoint')} "
            "are partial). Finish the extraction before you save results."
        )
    write_harness(
        result.lambada.join(steps, on=CHECKPOINT),
        folder,
        task="lambada_openai",
        metrics={"acc": "acc", "perplexity": "perplexity"},
        samples="examples",
        original="expected",
    )
