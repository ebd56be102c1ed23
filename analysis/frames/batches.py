"""Scans in batches of checkpoints: what an analysis holds at once does not grow with their number.

A batch has a bounded number of rows, not of checkpoints.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple, TypeVar, overload

import numpy as np
import polars as pl

from logitbank.analysis.frames.apart import check_checkpoints_apart
from logitbank.analysis.frames.same_prompts import check_same_prompts
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.read.scan import CHECKPOINT, VALUES, scan
from logitbank.wording import checkpoint_name

Scan = pl.LazyFrame | pl.DataFrame | Sequence[pl.LazyFrame]
"""One frame, or several with different checkpoints, to be worked through one after the other."""

ROWS = 1_200_000
"""Of a batch: 25 checkpoints of WinoBias in five orders, for which fairness takes 340 MB in all.
With 400,000 more or less it takes 45 MB more or less, and a tenth of the time less or more."""
CHECKPOINTS = 20
"""Of a batch, at most, unless all together have few rows: so 154 take no more memory than 20."""
FEW_ROWS = 20_000

T = TypeVar("T")
F = TypeVar("F")
Place = tuple[str, int | None]
"""Run and step; null is a release."""


class Batches(Sequence[pl.LazyFrame]):
    """Frames that are put together when they are asked for, each time anew.

    A frame holds small files, and of large ones what it takes to read them: of 154 checkpoints that
    was 10 to 20 MB before the first one was read.
    """

    def __init__(
        self, made: Sequence[Callable[[], pl.LazyFrame]], columns: Sequence[Collection[str]]
    ) -> None:
        self._made, self.columns = made, columns

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, at: int) -> pl.LazyFrame: ...
    @overload
    def __getitem__(self, at: slice) -> "Batches": ...
    def __getitem__(self, at: int | slice) -> "pl.LazyFrame | Batches":
        if isinstance(at, slice):
            return Batches(self._made[at], self.columns[at])
        return self._made[at]()


def batches(
    banks: Bank | Sequence[Bank],
    prompts: str | Sequence[str],
    *,
    models: Collection[str] | None = None,
    steps: Collection[int | None] | None = None,
    rows: int = ROWS,
    coded: Collection[str] = (),
) -> Batches:
    """`Bank.scan` of banks that hold a prompt set, in frames of about `rows` rows.

    A frame has whole checkpoints, and with them those of other models at the same run and step,
    which may be compared. Analyses take the list in a scan's place and give the same numbers.

    Parameters
    ----------
    prompts
        Or several prompt sets, put together by checkpoint: of every bank those that it holds.
    models, steps
        Keep these checkpoints; all if None.
    coded
        Columns to give as Categorical where they are there and text, for analyses that group by
        them.

    Raises
    ------
    BankError
        As `Bank.scan`. Of several prompt sets those without a score are left out.
    UsageError
        Two banks have other content of one prompt, or the scores of one checkpoint.
    """
    banks = [banks] if isinstance(banks, Bank) else banks
    if isinstance(prompts, str):
        holdings = [_held(bank, prompts, models, steps) for bank in banks]
        _check_same(banks, [prompts] * len(banks), holdings)
        for bank, holding in zip(banks, holdings, strict=True):
            if not holding.deposits and (
                models is None or not any(other.deposits for other in holdings)
            ):
                bank.scan(prompts, models=models, steps=steps)  # says what there is
    else:
        both = [(bank, name) for bank in banks for name in bank.prompt_sets if name in prompts]
        holdings = [_held(bank, name, models, steps) for bank, name in both]
        _check_same([bank for bank, _ in both], [name for _, name in both], holdings)
    parts = [*_divided(holdings, rows)]
    columns = [_columns(holdings, batch) for batch in parts]
    return Batches([partial(_frame, holdings, batch, coded) for batch in parts], columns)


def frames_of(given: Scan) -> Sequence[pl.LazyFrame]:
    """The frames of a scan, or the one.

    Raises
    ------
    UsageError
        There is none.
    """
    if isinstance(given, pl.LazyFrame | pl.DataFrame):
        return [given.lazy()]
    if not given:
        raise UsageError("there is no frame to analyse; give a scan, or what `batches` gives")
    return given if isinstance(given, Batches) else [frame.lazy() for frame in given]


def columns_of(frames: Sequence[pl.LazyFrame]) -> Sequence[Collection[str]]:
    """The columns of each frame; none of a batch is put together for it."""
    if isinstance(frames, Batches):
        return frames.columns
    return [frame.collect_schema().names() for frame in frames]


class NoRowsError(BankError):
    """A frame has no row that an analysis is of; it is refused where no other frame has one."""


def each_with_rows(frames: Iterable[F], read: Callable[[F], T]) -> Iterator[T]:
    """What is read of one frame after another, without those that have no row.

    A checkpoint that was begun and has no row yet, or none of these prompts, may be alone in its
    frame. Nothing that was given is held while the next one is read.

    Raises
    ------
    NoRowsError
        No frame has any: as `read` raises it of the first.
    """
    refused: list[NoRowsError] = []
    some = False
    for frame in frames:
        try:
            yield read(frame)
            some = True
        except NoRowsError as error:
            refused.append(error)
    if refused and not some:
        raise refused[0]


def check_apart(parts: Sequence[pl.DataFrame]) -> None:
    """Raise UsageError where two frames of a scan, by their checkpoints, have the same one."""
    keys = pl.concat(part.select("model", "run", "step").unique() for part in parts)
    twice = keys.filter(pl.struct(pl.all()).is_duplicated()).sort(pl.all())
    if len(twice):
        raise UsageError(
            f"{checkpoint_name(twice.row(0, named=True))} is in several frames; each frame of a "
            "scan has checkpoints of its own, so concatenate those"
        )


class _Held(NamedTuple):
    """What a bank has of a prompt set: listed once, as a scan of each batch would list it again."""

    prompts: pl.LazyFrame
    rows: Mapping[str, int]
    """Of each query set, for one deposit; fewer where blocks are not committed."""
    deposits: Mapping[Place, list[Deposit]]


def _columns(holdings: Sequence[_Held], batch: Sequence[Place]) -> set[str]:
    """What `_frame` has."""
    own = [
        holding.prompts.collect_schema().names()
        for holding in holdings
        if any(holding.deposits.get(place) for place in batch)
    ]
    return {*CHECKPOINT, *VALUES, *(name for names in own for name in names)}


def _frame(
    holdings: Sequence[_Held], batch: Sequence[Place], coded: Collection[str]
) -> pl.LazyFrame:
    frames = [
        scan(holding.prompts, deposits, coded=coded)
        for holding in holdings
        if (deposits := [d for place in batch for d in holding.deposits.get(place, ())])
    ]
    return pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]


def _check_same(banks: Sequence[Bank], names: Sequence[str], holdings: Sequence[_Held]) -> None:
    """Of banks that give rows of a prompt set."""
    giving: dict[str, list[tuple[Bank, list[Deposit]]]] = {}
    for bank, name, holding in zip(banks, names, holdings, strict=True):
        if holding.deposits:
            deposits = [d for place in holding.deposits.values() for d in place]
            giving.setdefault(name, []).append((bank, deposits))
    for name, given in giving.items():
        own_banks = [bank for bank, _ in given]
        check_same_prompts(own_banks, name)
        check_checkpoints_apart(own_banks, name, [deposits for _, deposits in given])


def _held(
    bank: Bank,
    prompts: str,
    models: Collection[str] | None,
    steps: Collection[int | None] | None,
) -> _Held:
    table = bank.prompts(prompts)
    rows = dict(table.group_by("query_set").len().collect().iter_rows())
    deposits: dict[Place, list[Deposit]] = {}
    for deposit in bank.deposits():
        checkpoint = deposit.checkpoint
        if (
            deposit.query_set in rows
            and (models is None or checkpoint.model in models)
            and (steps is None or checkpoint.step in steps)
        ):
            deposits.setdefault((checkpoint.run, checkpoint.step), []).append(deposit)
    bank.require_scored(prompts, [deposit for place in deposits.values() for deposit in place])
    return _Held(table, rows, deposits)


def _divided(holdings: Sequence[_Held], rows: int) -> Iterator[list[Place]]:
    """The places of each batch, of one run and as even as can be."""
    sizes: dict[str, dict[int | None, int]] = {}
    for holding in holdings:
        for (run, step), deposits in holding.deposits.items():
            steps = sizes.setdefault(run, {})
            steps[step] = steps.get(step, 0) + sum(holding.rows[d.query_set] for d in deposits)
    for run in sorted(sizes):
        ordered = sorted(sizes[run], key=lambda step: (step is None, step or 0))
        for part in evenly(ordered, rows=sum(sizes[run].values()), most=rows):
            yield [(run, step) for step in part]


def evenly(steps: Sequence[T], *, rows: int, most: int) -> Iterator[Sequence[T]]:
    """Checkpoints in parts of about `most` rows, as even as can be, of `rows` in all.

    >>> [list(part) for part in evenly(range(5), rows=50_000, most=30_000)]
    [[0, 1, 2], [3, 4]]
    """
    number = ceil(rows / most)
    if rows > FEW_ROWS:
        number = max(number, ceil(len(steps) / CHECKPOINTS))
    for part in np.array_split(np.arange(len(steps)), max(1, min(len(steps), number))):
        if len(part):
            yield steps[part[0] : part[-1] + 1]
