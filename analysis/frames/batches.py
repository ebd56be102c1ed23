"""Scans in batches of checkpoints, so that memory does not grow with their number.

A batch has a bounded number of rows, not of checkpoints.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl

from logitbank.analysis.frames.banks import check_same_prompts
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank, CheckpointId, Deposit
from logitbank.store.read.choose import Steps, checkpoints_chosen
from logitbank.store.read.missing_scores import require_scored
from logitbank.store.read.scan import PromptRows, scan
from logitbank.store.steps import in_order

ROWS = 400_000
"""Rows of a batch: 8 checkpoints of WinoBias in five orders."""
TOKEN_ROWS = 40_000
"""Rows of a batch whose rows are tokens: sums over the tokens of prompts take several times the
memory of dense arrays."""
CHECKPOINTS = 20
"""Most checkpoints of a batch, unless all together have few rows: 154 take the memory of 20."""
FEW_ROWS = 20_000

T = TypeVar("T")
F = TypeVar("F")
Place = tuple[str, str, int | None]
"""Model, run and step; null is a release."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A few checkpoints of one model and run."""

    scores: "Sequence[SetScores]"
    places: Sequence[Place]

    def frame(self) -> pl.LazyFrame:
        """One row per checkpoint, prompt, option order and option, as `Bank.scan`."""
        frames = [
            scan(one.prompts, deposits)
            for one in self.scores
            if (deposits := [d for key in self.places for d in one.deposits.get(key, ())])
        ]
        return pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]


class Batches:
    """Frames that are made each time they are read.

    A frame keeps small files, and what it takes to read large ones: for 154 checkpoints that
    was 10 to 20 MB before the first one was read.
    """

    def __init__(self, parts: Sequence[Batch]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[pl.LazyFrame]:
        return (part.frame() for part in self.parts)


def refuse_duplicates(scores: Sequence["SetScores"]) -> None:
    """Raise UsageError if two banks have the scores of one checkpoint, or other prompts."""
    complete: dict[tuple[object, str], Bank] = {}
    for one in scores:
        for deposit in [each for own in one.deposits.values() for each in own if each.complete]:
            other = complete.setdefault((deposit.checkpoint, deposit.query_set), one.bank)
            if other is not one.bank:
                raise UsageError(
                    f"{deposit.checkpoint} has scores of {one.name!r} in both {other.address} and "
                    f"{one.bank.address}. Leave one out, or use `logitbank merge`."
                )
    for name in dict.fromkeys(one.name for one in scores):
        check_same_prompts([o.bank for o in scores if o.name == name and o.deposits], name)


def chosen_checkpoints(
    deposits: Iterable[Deposit],
    *,
    models: Sequence[str] | None = None,
    runs: Sequence[str] | None = None,
    steps: Steps = None,
) -> frozenset[CheckpointId]:
    """The checkpoints of deposits that are of these models, runs and steps; maybe none.

    A text of steps selects among the steps of each model and run in all of the deposits.

    Raises
    ------
    SuiteError
        A text selects no step.
    """
    with suppress(AbsentError):
        chosen = checkpoints_chosen([*deposits], models=models, runs=runs, steps=steps)
        return frozenset(deposit.checkpoint for deposit in chosen)
    return frozenset()


class NoRowsError(BankError):
    """A frame has no row for an analysis; refused if no other frame has one."""


def read_nonempty(frames: Iterable[F], read: Callable[[F], T]) -> Iterator[T]:
    """The results of `read` for one frame after another, without frames that have no row.

    A checkpoint that was started and has no row yet, or none of these prompts, may be alone in its
    frame. No frame is kept while the next one is read.

    Raises
    ------
    NoRowsError
        No frame has a row: the error of the first.
    """
    errors: list[NoRowsError] = []
    some = False
    for frame in frames:
        try:
            yield read(frame)
            some = True
        except NoRowsError as error:
            errors.append(error)
    if errors and not some:
        raise errors[0]


class SetScores(NamedTuple):
    """The deposits of a prompt set in a bank: listed once, not again for each batch."""

    bank: Bank
    name: str
    table: pl.LazyFrame
    """The prompts, or some of them."""
    prompts: PromptRows
    """Their rows."""
    deposits: Mapping[Place, list[Deposit]]


def set_scores(
    bank: Bank, name: str, table: pl.LazyFrame, deposits: Sequence[Deposit], coded: Collection[str]
) -> SetScores:
    """The scores of the prompts in a table by some deposits.

    Raises
    ------
    BankError
        Options were named after the full rows of a deposit, and have no score.
    """
    require_scored(bank.path, name, deposits, table)
    by_place: dict[Place, list[Deposit]] = {}
    for deposit in deposits:
        checkpoint = deposit.checkpoint
        place = (checkpoint.model, checkpoint.run, checkpoint.step)
        by_place.setdefault(place, []).append(deposit)
    return SetScores(bank, name, table, PromptRows(table, coded), by_place)


def divided(
    scores: Sequence[SetScores], rows_of: Sequence[Mapping[str, int]], rows: int
) -> Iterator[list[Place]]:
    """The checkpoints of each batch, of one model and run and as even as possible.

    `rows_of` has the rows of one deposit for each query set, fewer if blocks are not committed.
    """
    sizes: dict[tuple[str, str], dict[int | None, int]] = {}
    for one, of_query_sets in zip(scores, rows_of, strict=True):
        for (model, run, step), deposits in one.deposits.items():
            steps = sizes.setdefault((model, run), {})
            steps[step] = steps.get(step, 0) + sum(of_query_sets[d.query_set] for d in deposits)
    for model, run in sorted(sizes):
        steps = sizes[model, run]
        for part in evenly(in_order(steps), rows=sum(steps.values()), most=rows):
            yield [(model, run, step) for step in part]


def evenly(steps: Sequence[T], *, rows: int, most: int) -> Iterator[Sequence[T]]:
    """Checkpoints in parts of about `most` rows, as even as possible, of `rows` in all.

    >>> [list(part) for part in evenly(range(5), rows=50_000, most=30_000)]
    [[0, 1, 2], [3, 4]]
    """
    number = ceil(rows / most)
    if rows > FEW_ROWS:
        number = max(number, ceil(len(steps) / CHECKPOINTS))
    for part in np.array_split(np.arange(len(steps)), max(1, min(len(steps), number))):
        if len(part):
            yield steps[part[0] : part[-1] + 1]
