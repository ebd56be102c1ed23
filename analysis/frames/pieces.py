"""Prompts of several scored positions: from one row per piece to one row per prompt.

A sentence or a target word owns as many queries as it has tokens. Sums over its pieces mean
something only where all of them are there, so a prompt that a checkpoint has in part is left out.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import polars as pl

from logitbank.analysis.frames.batches import (
    NoRowsError,
    Scan,
    check_apart,
    columns_of,
    each_with_rows,
    frames_of,
)
from logitbank.analysis.frames.expressions import tied_others, unique_maximum
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name

AGAIN = "extract that checkpoint again, or where it is a view, use a filter with mode keep_tail"
"""What to do about a probability of 0, which a filter that truncates gives."""

CHECKPOINT = ("model", "run", "step")
PROMPT = (*CHECKPOINT, "prompt_id")
T = TypeVar("T")


class WholePrompts(NamedTuple):
    """What `whole_prompts` gives."""

    rows: pl.DataFrame
    """One row per checkpoint × prompt with all its pieces, sorted by checkpoint and prompt."""
    coverage: pl.DataFrame
    """model, run, step, prompts (whole ones), missing (of those that the model has anywhere)."""


def whole_prompts(
    frame: pl.LazyFrame | pl.DataFrame,
    *,
    family: str,
    columns: Sequence[str] = (),
    more: Sequence[pl.Expr] = (),
    expected: pl.DataFrame | None = None,
) -> WholePrompts:
    """Sum the log-probabilities of every prompt's pieces.

    Parameters
    ----------
    frame
        Rows of checkpoint × prompt × piece: model, run, step, prompt_id, piece, logprob (nats).
    family
        Whose rows they are, for messages.
    columns
        Columns that hold for the whole prompt and are kept.
    more
        Further aggregates over a prompt's pieces.
    expected
        Columns model, prompt_id, pieces: how many pieces each prompt has. Without it, as many as
        any checkpoint of the model has.

    Returns
    -------
    Rows with model, run, step, prompt_id, `pieces`, `logprob` (nats, the sum), `columns`, `more`.

    Raises
    ------
    UsageError
        The frame lacks columns, or scores a piece twice.
    BankError
        No rows, or a log-probability that is not finite.
    """
    check_columns(frame, (*PROMPT, "piece", "logprob", *columns), family=family)
    pieces = frame.lazy().with_columns(pl.col("model", "run", "prompt_id").cast(pl.String))
    summed = (
        pieces.group_by(PROMPT)
        .agg(
            *(pl.col(name).first() for name in columns),
            *more,
            pieces=pl.len().cast(pl.Int64),
            distinct=pl.col("piece").n_unique().cast(pl.Int64),
            last=pl.col("piece").max().cast(pl.Int64),
            finite=pl.col("logprob").is_finite().fill_null(False).all(),
            logprob=sum_in_any_order("logprob"),
        )
        .sort(PROMPT, nulls_last=True)
        .collect()
    )
    if summed.is_empty():
        raise NoRowsError(f"there is no {family} score; extract first, or widen the filters")
    _check(summed, pieces, family)
    if expected is None:
        expected = summed.group_by("model", "prompt_id").agg(pieces=pl.col("last").max() + 1)
    known = summed.join(
        expected.select("model", "prompt_id", whole="pieces"),
        on=["model", "prompt_id"],
        how="left",
        maintain_order="left",
    )
    rows = known.filter(pl.col("pieces") == pl.col("whole"))
    return WholePrompts(
        rows.drop("distinct", "last", "finite", "whole"), _coverage(rows, known, expected)
    )


def sum_in_any_order(column: str) -> pl.Expr:
    """The sum of nats, the same for the same values in whatever order they are added.

    Floating sums of one prompt's pieces and of another's, of the same values, differ in the last
    bit, so that what ties would not. These are sums of integers: whole 2^-20, and what is left of
    them in 2^-60, which is less than a float64 can tell of a log-probability below -0.01.

    >>> values = pl.DataFrame({"x": [-0.1, -0.7, -0.2]})
    >>> values.select(sum_in_any_order("x")).item()
    -1.0
    """
    scaled = pl.col(column) * 2.0**20
    parts = (scaled.round(), (scaled - scaled.round()) * 2.0**40)
    # Not strict: what is not finite becomes null here, and is refused by `_check`.
    whole, rest = (part.round().cast(pl.Int64, strict=False).sum() for part in parts)
    return whole / 2.0**20 + rest / 2.0**60


def whole_in_turn(
    scan: Scan,
    reduce: Callable[[WholePrompts, pl.DataFrame | None], T],
    *,
    family: str,
    columns: Sequence[str] = (),
    more: Sequence[pl.Expr] = (),
    expected: pl.DataFrame | None = None,
) -> list[T]:
    """What is made of the whole prompts of one frame after another, and of `expected`.

    Without `expected`, the pieces of a prompt are those in all frames. Other parameters and
    exceptions are those of `whole_prompts`; two frames have no checkpoint in common. One without
    rows is left out where others have some.
    """
    frames = frames_of(scan)
    if expected is None and len(frames) > 1:
        for names in columns_of(frames):
            check_names(names, (*PROMPT, "piece", "logprob", *columns), family=family)
        expected = _most_pieces(frames, columns)
    results, checkpoints = [], []
    read = partial(whole_prompts, family=family, columns=columns, more=more, expected=expected)
    for whole in each_with_rows(frames, read):
        checkpoints.append(whole.coverage)
        results.append(reduce(whole, expected))
    check_apart(checkpoints)
    return results


def together(tables: Sequence[pl.DataFrame], *order: str) -> pl.DataFrame:
    """Rows of some checkpoints each, sorted by checkpoint and the `order` within."""
    return pl.concat(tables).sort(*CHECKPOINT, *order, nulls_last=True, maintain_order=True)


def _most_pieces(frames: Sequence[pl.LazyFrame], columns: Sequence[str]) -> pl.DataFrame:
    key = ["model", "prompt_id"]
    parts = [
        frame.with_columns(pl.col(key).cast(pl.String))
        .group_by(key)
        .agg(pl.col(columns).first(), pieces=pl.col("piece").max().cast(pl.Int64) + 1)
        .collect()
        for frame in frames
    ]
    return pl.concat(parts).group_by(key).agg(pl.col(columns).first(), pl.col("pieces").max())


def greedy_match() -> list[pl.Expr]:
    """Aggregates of `whole_prompts`: whether greedy decoding would write the prompt's word.

    `correct`: every piece is the only maximum of its vocabulary row. `tied`: every piece has the
    largest logit, and one shares it, which is no match. `inexact`: a rank is a bound. Over the
    columns `rank`, `ties` and `exact`.
    """
    return [
        unique_maximum().all().alias("correct"),
        ((pl.col("rank") == 1).all() & (tied_others() > 0).any()).alias("tied"),
        (~pl.col("exact")).any().alias("inexact"),
    ]


def check_columns(
    frame: pl.LazyFrame | pl.DataFrame, needed: Sequence[str], *, family: str
) -> None:
    """Raise UsageError unless the frame has the columns that a family needs."""
    check_names(frame.lazy().collect_schema().names(), needed, family=family)


def check_names(names: Collection[str], needed: Sequence[str], *, family: str) -> None:
    """As `check_columns`, of the names of columns."""
    if missing := [name for name in needed if name not in names]:
        raise UsageError(
            f"the prompt set lacks {', '.join(missing)}, which {family} needs; name {family}, or "
            f'one with its columns, with --prompts (in Python, bank.scan("{family}"))'
        )


def _options(pieces: pl.LazyFrame, prompt_id: str) -> list[str]:
    """The options of a prompt, where the frame tells them."""
    if "option" not in pieces.collect_schema().names():
        return []
    rows = pieces.filter(pl.col("prompt_id") == prompt_id)
    options = rows.select(pl.col("option").cast(pl.String).drop_nulls().unique().sort())
    return options.collect().to_series().to_list()


def _check(summed: pl.DataFrame, pieces: pl.LazyFrame, family: str) -> None:
    twice = summed.filter(pl.col("pieces") != pl.col("distinct"))
    if len(twice):
        row = twice.row(0, named=True)
        if len(options := _options(pieces, row["prompt_id"])) > 1:
            raise UsageError(
                f"prompt {row['prompt_id']!r} has {len(options)} options "
                f"({', '.join(map(repr, options))}), and {family} needs prompts of one text that "
                f"is scored, as those with a target; name a set such as {family} with --prompts"
            )
        raise UsageError(
            f"prompt {row['prompt_id']!r} of {checkpoint_name(row)} has a piece that is scored "
            f"twice ({len(twice):,} such prompts); scan one prompt set, without option orders"
        )
    invalid = summed.filter(~pl.col("finite"))
    if len(invalid):
        row = invalid.row(0, named=True)
        value = pieces.filter(
            *(pl.col(name).eq_missing(pl.lit(row[name])) for name in PROMPT),
            ~pl.col("logprob").is_finite().fill_null(False),
        ).collect()["logprob"][0]
        raise BankError(
            f"prompt {row['prompt_id']!r} of {checkpoint_name(row)} has a log-probability of "
            f"{value} ({len(invalid):,} such prompts); {AGAIN}"
        )


def _coverage(rows: pl.DataFrame, known: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    whole = rows.group_by(CHECKPOINT).agg(prompts=pl.len().cast(pl.Int64))
    of_model = expected.group_by("model").agg(all=pl.len().cast(pl.Int64))
    return (
        known.select(CHECKPOINT)
        .unique()
        .join(whole, on=CHECKPOINT, how="left", nulls_equal=True)
        .join(of_model, on="model", how="left")
        .with_columns(pl.col("prompts").fill_null(0))
        .select(*CHECKPOINT, "prompts", missing=pl.col("all") - pl.col("prompts"))
        .sort(CHECKPOINT, nulls_last=True)
    )
