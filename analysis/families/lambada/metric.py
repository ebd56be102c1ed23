"""LAMBADA: is the last word of a passage predicted, and how probable is it.

Frames in, frames out. The word is scored token by token behind the passage and its own earlier
tokens (teacher forcing).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl

from logitbank.analysis.families.lambada import FAMILY
from logitbank.analysis.frames.batches import Scan, as_frames, frame_columns
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import (
    CHECKPOINT,
    PromptSums,
    check_columns,
    concat_sorted,
    greedy_match,
    map_prompt_sums,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.harness import write_harness
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.summary import BASELINE, summarise
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name, counted

T = TypeVar("T")
NEEDED = ("rank", "ties", "exact")


@dataclass(frozen=True, slots=True)
class Lambada(Result):
    """What `lambada_metric` found, one row per checkpoint; step is null for a release."""

    lambada: pl.DataFrame
    """acc with its standard error and interval (Wilson, 95 %); perplexity per example with its
    standard error (delta method) and interval; examples; `tied` ones, whose last word shared the
    largest logit with another token and which count as wrong; `inexact` ones, whose rank is a
    bound. `from_baseline`, the difference of acc from the first checkpoint's, `baseline_step`, in
    pairs over the `common` examples."""
    checkpoints: pl.DataFrame
    """prompts that are there with all their tokens, and how many are missing."""
    settings: Mapping[str, str | int | float | bool | None]


def lambada_metric(frame: Scan, *, expected: pl.DataFrame | None = None) -> Lambada:
    r"""Accuracy and perplexity of LAMBADA at every checkpoint. All arithmetic is float64.

    An example is correct if every token of the word is the only maximum of its vocabulary row, so
    that greedy decoding writes that word. Standard error :math:`\sqrt{a(1-a)/(N-1)}`. Perplexity
    is :math:`\exp(-\frac1N\sum_n\sum_t\ln p_{nt})`: its mean is over examples, not over tokens.

    Parameters
    ----------
    frame
        `Bank.scan("lambada")`: one row per checkpoint, example and token of the word. Or several
        such frames, as `batches` gives them.
    expected
        How many tokens each example has, as for `sum_prompts`. An example that a checkpoint
        has in part is left out there and counted as missing.

    Raises
    ------
    UsageError, BankError
        As `sum_prompts`; prompts that are no words after a passage.

    References
    ----------
    Paperno et al. 2016; the OpenAI variant and the quantities of lm-evaluation-harness
    (`lambada_openai`: `acc`, `perplexity`). Not in the harness: a tie for the largest logit counts
    as wrong; the intervals.

    Examples
    --------
    One word of two tokens and one of one token: −ln p is 3 and 1, a mean of 2 for each example.

    >>> rows = {
    ...     "model": "m", "run": "main", "step": 8, "prompt_id": ["a", "a", "b"],
    ...     "piece": [0, 1, 0], "logprob": [-1.0, -2.0, -1.0], "rank": [1, 1, 4], "ties": 0,
    ...     "exact": True,
    ... }
    >>> lambada_metric(pl.DataFrame(rows)).lambada.select("acc", pl.col("perplexity").log()).row(0)
    (0.5, 2.0)
    """
    return _read(frame, expected).result


class Reading(NamedTuple):
    """One read of LAMBADA: the result, and its items for a trade-off."""

    result: Lambada
    items: Items


def read_lambada(source: Scores) -> Reading:
    """The reading of banks, made once in a report."""
    return source.cached("lambada", lambda: _read(source.frames(), source.expected()))


def read_items(source: Scores) -> Items:
    """Whether each example is correct, and its log-probability."""
    return gather_items(
        examples_in_turn(
            source.frames(), lambda sums: items(sums.all_rows), expected=source.expected()
        )
    )


def _read(frame: Scan, expected: pl.DataFrame | None) -> Reading:
    parts = examples_in_turn(
        frame, lambda sums: (items(sums.all_rows), _counts(sums.rows), sums.coverage),
        expected=expected,
    )  # fmt: skip
    of_frames, counts, coverage = zip(*parts, strict=True)
    examples = gather_items(of_frames)
    summary = summarise(examples, FAMILY.measures).filter(pl.col("items") > 0)
    accuracy = summary.filter(measure="acc").select(
        *CHECKPOINT, "low", "high", *BASELINE, acc="value", acc_stderr="stderr"
    )
    ends = {"perplexity": "value", "perplexity_stderr": "stderr", "perplexity_low": "low",
            "perplexity_high": "high"}  # fmt: skip
    table = summary.filter(measure="perplexity").select(*CHECKPOINT, **ends, examples="items")
    for more in (accuracy, pl.concat(counts)):
        table = table.join(more, on=CHECKPOINT, how="left", nulls_equal=True, maintain_order="left")
    result = Lambada(
        lambada=table.select(
            *CHECKPOINT, "acc", "acc_stderr", "low", "high", *ends, "examples", "tied", "inexact",
            *BASELINE,
        ),
        checkpoints=concat_sorted(coverage),
        settings={"intervals": "Wilson for acc, t for the mean of ln p, 95 %"},
    )  # fmt: skip
    return Reading(result, examples)


def items(rows: pl.DataFrame) -> pl.DataFrame:
    """Two items of each example: its parts are the measures."""
    values = {"acc": pl.col("correct").cast(pl.Float64), "perplexity": pl.col("logprob")}
    return pl.concat(
        rows.select(*CHECKPOINT, item="prompt_id", part=pl.lit(part), value=value)
        for part, value in values.items()
    )


def _counts(rows: pl.DataFrame) -> pl.DataFrame:
    """Examples whose last word shares the largest logit, and those whose rank is a bound."""
    return rows.group_by(CHECKPOINT).agg(pl.col("tied", "inexact").sum().cast(pl.Int64))


def lambada_examples(
    frame: pl.LazyFrame | pl.DataFrame, *, expected: pl.DataFrame | None = None
) -> PromptSums:
    """One row per checkpoint and example.

    Columns pieces, logprob (their sum, nats), correct, tied, inexact. `tied`: every token
    has the largest logit, and one shares it.
    """
    (examples_table,) = examples_in_turn(frame, lambda examples: examples, expected=expected)
    return examples_table


def examples_in_turn(
    scan: Scan, reduce: Callable[[PromptSums], T], *, expected: pl.DataFrame | None = None
) -> list[T]:
    """What is made of `lambada_examples` of one frame after another."""
    frames = as_frames(scan)
    names_of_frames = frame_columns(frames)
    for names in names_of_frames:
        check_columns(names, NEEDED, family=FAMILY.name)
    kinds = ["score_kind" in names for names in names_of_frames]
    columns = ["score_kind"] if all(kinds) else []

    def checked(prompts: PromptSums) -> T:
        for name in columns:
            invalid = prompts.rows.filter(pl.col(name) != "target")
            if len(invalid):
                raise UsageError(
                    f"prompt {invalid['prompt_id'][0]!r} is scored as {invalid[name][0]!r}, no "
                    f"word after its passage ({len(invalid):,} such rows); name a set of "
                    "LAMBADA's with --prompts"
                )
        return reduce(prompts._replace(rows=prompts.rows.drop(columns)))

    return map_prompt_sums(
        frames, checked, family=FAMILY.name, columns=columns, more=greedy_match(), expected=expected
    )


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
