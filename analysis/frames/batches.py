"""Scans in batches of checkpoints, so that memory does not grow with their number.

A batch has a bounded number of rows, not of checkpoints.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple, TypeVar, overload

import numpy as np
import polars as pl

from logitbank.analysis.frames.banks import (
    check_distinct_checkpoints,
    check_same_prompts,
    no_prompts,
    select_models,
)
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.read.missing_scores import require_scored
from logitbank.store.read.scan import CHECKPOINT, VALUES, scan
from logitbank.store.steps import in_order
from logitbank.wording import checkpoint_name

Scan = pl.LazyFrame | pl.DataFrame | Sequence[pl.LazyFrame]
"""One frame, or several with different checkpoints, which are read one after the other."""

ROWS = 600_000
"""Rows of a batch: 12 checkpoints of WinoBias in five orders."""
TOKEN_ROWS = 40_000
"""Rows of a batch whose rows are tokens: sums over the tokens of prompts take several times the
memory of dense arrays."""
CHECKPOINTS = 20
"""Most checkpoints of a batch, unless all together have few rows: 154 take the memory of 20."""
FEW_ROWS = 20_000

T = TypeVar("T")
F = TypeVar("F")
RunStep = tuple[str, int | None]
"""Run and step; null is a release."""


class Batches(Sequence[pl.LazyFrame]):
    """Frames that are made each time they are read.

    A frame keeps small files, and what it takes to read large ones: for 154 checkpoints that
    was 10 to 20 MB before the first one was read.
    """

    def __init__(
        self, make: Sequence[Callable[[], pl.LazyFrame]], columns: Sequence[Collection[str]]
    ) -> None:
        self._make, self.columns = make, columns

    def __len__(self) -> int:
        return len(self._make)

    @overload
    def __getitem__(self, index: int) -> pl.LazyFrame: ...
    @overload
    def __getitem__(self, index: slice) -> "Batches": ...
    def __getitem__(self, index: int | slice) -> "pl.LazyFrame | Batches":
        if isinstance(index, slice):
            return Batches(self._make[index], self.columns[index])
        return self._make[index]()


def prompt_frames(
    banks: Sequence[Bank],
    prompts: str,
    models: Sequence[str] | None,
    *,
    steps: Collection[int | None] | None = None,
    rows: int = TOKEN_ROWS,
    coded: Collection[str] = (),
) -> Sequence[pl.LazyFrame]:
    """Scans of the banks that have a prompt set, together and in `batches`.

    Raises
    ------
    AbsentError
        None of the banks has the prompt set, or one of the models.
    """
    holding = [bank for bank in banks if prompts in bank.prompt_sets]
    if not holding:
        raise AbsentError(no_prompts(banks, prompts, example=prompts))
    select_models([bank.models for bank in holding], models, "the banks")  # raises
    return batches(holding, prompts, models=models, steps=steps, rows=rows, coded=coded)


def batches(
    banks: Bank | Sequence[Bank],
    prompts: str | Sequence[str],
    *,
    models: Collection[str] | None = None,
    steps: Collection[int | None] | None = None,
    rows: int = ROWS,
    coded: Collection[str] = (),
) -> Batches:
    """`Bank.scan` of banks that have a prompt set, in frames of about `rows` rows.

    A frame has whole checkpoints, and with them those of other models at the same run and step,
    which may be compared. Analyses accept the list instead of a scan and return the same numbers.

    Parameters
    ----------
    prompts
        One prompt set, or several, joined by checkpoint: of every bank those that it has.
    models, steps
        Keep these checkpoints; all if None.
    coded
        Text columns to return as Categorical, if present, for analyses that group by them.

    Raises
    ------
    BankError
        As `Bank.scan`. Of several prompt sets those without a score are left out.
    UsageError
        Two banks have other content of one prompt, or the scores of one checkpoint.
    """
    banks = [banks] if isinstance(banks, Bank) else banks
    names = [prompts] if isinstance(prompts, str) else prompts
    pairs = [
        (bank, name)
        for bank in banks
        for name in ([prompts] if isinstance(prompts, str) else bank.prompt_sets)
        if name in names
    ]
    scores = [_read_scores(bank, name, models, steps) for bank, name in pairs]
    for name in dict.fromkeys(names):
        scored = [
            (bank, one.all_deposits)
            for (bank, other), one in zip(pairs, scores, strict=True)
            if other == name and one.deposits
        ]
        holding = [bank for bank, _ in scored]
        check_same_prompts(holding, name)
        check_distinct_checkpoints(holding, name, [deposits for _, deposits in scored])
    if isinstance(prompts, str):
        for bank, one in zip(banks, scores, strict=True):
            if not one.deposits and (models is None or not any(other.deposits for other in scores)):
                bank.scan(prompts, models=models, steps=steps)  # raises
    parts = [*_divided(scores, rows)]
    columns = [_columns(scores, part) for part in parts]
    return Batches([partial(_frame, scores, part, coded) for part in parts], columns)


def as_frames(scan: Scan) -> Sequence[pl.LazyFrame]:
    """The frames of a scan.

    Raises
    ------
    UsageError
        There is none.
    """
    if isinstance(scan, pl.LazyFrame | pl.DataFrame):
        return [scan.lazy()]
    if not scan:
        raise UsageError("There is no frame to analyse. Pass a scan, or what `batches` returns.")
    return scan if isinstance(scan, Batches) else [frame.lazy() for frame in scan]


def check_expected(frames: Sequence[pl.LazyFrame], expected: pl.DataFrame | None) -> None:
    """Raise UsageError if several frames have no expected prompts: each has some of them only."""
    if expected is None and len(frames) > 1:
        raise UsageError(
            "Several frames need `expected`, the prompts of their prompt set: pass what "
            "`expected_token_counts` or `expected_rows` returns."
        )


def frame_columns(frames: Sequence[pl.LazyFrame]) -> Sequence[Collection[str]]:
    """The columns of each frame; no batch is made for it."""
    if isinstance(frames, Batches):
        return frames.columns
    return [frame.collect_schema().names() for frame in frames]


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


def check_disjoint(parts: Sequence[pl.DataFrame]) -> None:
    """Raise UsageError if two frames of a scan, by their checkpoints, have the same one."""
    keys = pl.concat(part.select("model", "run", "step").unique() for part in parts)
    duplicates = keys.filter(pl.struct(pl.all()).is_duplicated()).sort(pl.all())
    if len(duplicates):
        raise UsageError(
            f"{checkpoint_name(duplicates.row(0, named=True))} is in several frames of a scan. "
            "Concatenate those frames."
        )


class _Scores(NamedTuple):
    """The deposits of a prompt set in a bank: listed once, not again for each batch."""

    prompts: pl.LazyFrame
    rows: Mapping[str, int]
    """By query set, of one deposit; fewer if blocks are not committed."""
    deposits: Mapping[RunStep, list[Deposit]]

    @property
    def all_deposits(self) -> list[Deposit]:
        return [deposit for deposits in self.deposits.values() for deposit in deposits]


def _read_scores(
    bank: Bank,
    prompts: str,
    models: Collection[str] | None,
    steps: Collection[int | None] | None,
) -> _Scores:
    table = bank.prompts(prompts)
    rows = dict(table.group_by("query_set").len().collect().iter_rows())
    deposits: dict[RunStep, list[Deposit]] = {}
    for deposit in bank.deposits():
        checkpoint = deposit.checkpoint
        if (
            deposit.query_set in rows
            and (models is None or checkpoint.model in models)
            and (steps is None or checkpoint.step in steps)
        ):
            deposits.setdefault((checkpoint.run, checkpoint.step), []).append(deposit)
    scores = _Scores(table, rows, deposits)
    require_scored(bank.path, prompts, scores.all_deposits)
    return scores


def _columns(scores: Sequence[_Scores], part: Sequence[RunStep]) -> set[str]:
    """The columns of `_frame`."""
    tables = [one.prompts for one in scores if any(one.deposits.get(key) for key in part)]
    names = [name for table in tables for name in table.collect_schema().names()]
    return {*CHECKPOINT, *VALUES, *names}


def _frame(
    scores: Sequence[_Scores], part: Sequence[RunStep], coded: Collection[str]
) -> pl.LazyFrame:
    frames = [
        scan(one.prompts, deposits, coded=coded)
        for one in scores
        if (deposits := [d for key in part for d in one.deposits.get(key, ())])
    ]
    return pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]


def _divided(scores: Sequence[_Scores], rows: int) -> Iterator[list[RunStep]]:
    """The runs and steps of each batch, of one run and as even as possible."""
    sizes: dict[str, dict[int | None, int]] = {}
    for one in scores:
        for (run, step), deposits in one.deposits.items():
            steps = sizes.setdefault(run, {})
            steps[step] = steps.get(step, 0) + sum(one.rows[d.query_set] for d in deposits)
    for run in sorted(sizes):
        for part in evenly(in_order(sizes[run]), rows=sum(sizes[run].values()), most=rows):
            yield [(run, step) for step in part]


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
