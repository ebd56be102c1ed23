"""Prompts of several scored tokens: from one row per token to one row per prompt.

A sentence or a target word has one query per token. A sum over them is meaningful only if all are
scored, so a prompt that a checkpoint has in part is excluded.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from logitbank.analysis.frames.batches import NoRowsError
from logitbank.analysis.frames.expressions import same_as, tied_others, unique_maximum
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name

FIX_NOT_FINITE = "Extract that checkpoint again, or use a filter with mode keep_tail."
"""Advice about a probability of 0, which a filter that truncates gives."""

CHECKPOINT = ("model", "run", "step")
CHECKPOINT_SCHEMA = {"model": pl.String, "run": pl.String, "step": pl.Int64}
"""The step of a release is null."""
PROMPT = (*CHECKPOINT, "prompt_id")


class PromptSums(NamedTuple):
    """The prompts whose tokens are all scored."""

    rows: pl.DataFrame
    """One row per checkpoint × complete prompt (or option), sorted by checkpoint and prompt."""
    coverage: pl.DataFrame
    """model, run, step, prompts (complete), missing (of the expected ones)."""
    absent: pl.DataFrame
    """One row per checkpoint × expected prompt that is not complete, with its own columns."""

    @property
    def all_rows(self) -> pl.DataFrame:
        """All expected prompts; without a logprob where they are not complete."""
        return pl.concat([self.rows, self.absent], how="diagonal")


def sum_prompts(
    frame: pl.LazyFrame,
    expected: pl.DataFrame,
    *,
    family: str,
    columns: Sequence[str] = (),
    by: Sequence[str] = (),
    more: Sequence[pl.Expr] = (),
) -> PromptSums:
    """Sum the log-probabilities of every prompt's tokens.

    Parameters
    ----------
    frame
        Rows of checkpoint × prompt × token: model, run, step, prompt_id, piece, logprob (nats).
    expected
        Columns model, prompt_id, `by`, pieces, the number of tokens of each, and `columns`.
    family
        Name of the family of metrics, for messages.
    columns
        Columns of the prompt that are kept.
    by
        What has sums of its own within a prompt: `option`.
    more
        Further aggregates over a prompt's tokens.

    Returns
    -------
    Rows with model, run, step, prompt_id, `by`, `pieces`, `logprob` (nats, the sum), `columns`,
    `more`.

    Raises
    ------
    UsageError
        The frame scores a token twice.
    BankError
        No rows, or a log-probability that is not finite.
    """
    tokens = frame.with_columns(pl.col("model", "run", "prompt_id").cast(pl.String))
    key = [*PROMPT, *by]
    summed = (
        tokens.group_by(key)
        .agg(
            *(pl.col(name).first() for name in columns),
            *more,
            pieces=pl.len().cast(pl.Int64),
            distinct=pl.col("piece").n_unique().cast(pl.Int64),
            finite=pl.col("logprob").is_finite().fill_null(False).all(),
            logprob=exact_sum(),
        )
        .sort(key, nulls_last=True)
        .collect()
    )
    if summed.is_empty():
        raise NoRowsError(f"There is no score for {family}. Run `logitbank extract` first.")
    _check(summed, tokens, family)
    present = summed.join(
        expected.select("model", "prompt_id", *by, all="pieces"),
        on=["model", "prompt_id", *by],
        how="left",
        maintain_order="left",
    )
    rows = present.filter(pl.col("pieces") == pl.col("all"))
    rows = rows.drop("distinct", "finite", "all")
    coverage = _coverage(rows, present, expected)
    return PromptSums(rows, coverage, _absent(rows, coverage, expected, key, columns))


def exact_sum() -> pl.Expr:
    """The sum of log-probabilities in nats, the same for the same values in any order.

    Floating-point sums of the same values in another order differ in the last bit, so that ties
    would not tie. These are sums of integers: whole 2^-20, and the rest in 2^-60, which is below
    the precision of a float64 for a log-probability below -0.01.

    >>> values = pl.DataFrame({"logprob": [-0.1, -0.7, -0.2]})
    >>> values.select(exact_sum()).item()
    -1.0
    """
    scaled = pl.col("logprob") * 2.0**20
    parts = (scaled.round(), (scaled - scaled.round()) * 2.0**40)
    # Not strict: what is not finite becomes null here, and is refused by `_check`.
    whole, rest = (part.round().cast(pl.Int64, strict=False).sum() for part in parts)
    return whole / 2.0**20 + rest / 2.0**60


def concat_sorted(tables: Sequence[pl.DataFrame], *order: str) -> pl.DataFrame:
    """Rows of all tables, sorted by checkpoint and then by `order`."""
    return pl.concat(tables).sort(*CHECKPOINT, *order, nulls_last=True, maintain_order=True)


def greedy_match() -> list[pl.Expr]:
    """Aggregates for `sum_prompts`: whether greedy decoding would write the prompt's word.

    `correct`: every token is the only maximum of its vocabulary row. `tied`: every token has the
    largest logit, and another shares one, which is no match. `inexact`: a rank is a bound. Over the
    columns `rank`, `ties` and `exact`.
    """
    return [
        unique_maximum().all().alias("correct"),
        ((pl.col("rank") == 1).all() & (tied_others() > 0).any()).alias("tied"),
        (~pl.col("exact")).any().alias("inexact"),
    ]


def _check(summed: pl.DataFrame, tokens: pl.LazyFrame, family: str) -> None:
    duplicates = summed.filter(pl.col("pieces") != pl.col("distinct"))
    if len(duplicates):
        row = duplicates.row(0, named=True)
        raise UsageError(
            f"Prompt {row['prompt_id']!r} has a token that is scored twice at "
            f"{checkpoint_name(row)} ({len(duplicates):,} such prompts). {family} needs prompts "
            "with a single text, without options or option orders. Name such a set with --prompts."
        )
    invalid = summed.filter(~pl.col("finite"))
    if len(invalid):
        row = invalid.row(0, named=True)
        value = tokens.filter(
            same_as(row, PROMPT),
            ~pl.col("logprob").is_finite().fill_null(False),
        ).collect()["logprob"][0]
        raise BankError(
            f"Prompt {row['prompt_id']!r} has a log-probability of {value} at "
            f"{checkpoint_name(row)} ({len(invalid):,} such prompts). {FIX_NOT_FINITE}"
        )


def _absent(
    rows: pl.DataFrame,
    coverage: pl.DataFrame,
    expected: pl.DataFrame,
    key: Sequence[str],
    columns: Sequence[str],
) -> pl.DataFrame:
    """The expected prompts that are not among the rows of a checkpoint."""
    if not coverage["missing"].sum():
        return rows.select(*key, *columns).clear()
    names = [name for name in (*key, *columns) if name not in ("run", "step")]
    prompts = expected.select(names).cast({name: rows.schema[name] for name in names})
    everything = coverage.filter(pl.col("missing") > 0).select(CHECKPOINT).join(prompts, on="model")
    return everything.join(rows, on=key, how="anti", nulls_equal=True).select(*key, *columns)


def _coverage(rows: pl.DataFrame, present: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    complete = rows.group_by(CHECKPOINT).agg(prompts=pl.len().cast(pl.Int64))
    all_prompts = expected.group_by("model").agg(all=pl.len().cast(pl.Int64))
    return (
        present.select(CHECKPOINT)
        .unique()
        .join(complete, on=CHECKPOINT, how="left", nulls_equal=True)
        .join(all_prompts, on="model", how="left")
        .with_columns(pl.col("prompts").fill_null(0))
        .select(*CHECKPOINT, "prompts", missing=pl.col("all") - pl.col("prompts"))
        .sort(CHECKPOINT, nulls_last=True)
    )
