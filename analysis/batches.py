"""Scans in batches of checkpoints: what an analysis holds at once does not grow with their number.

A batch has a bounded number of rows, not of checkpoints. See decision 019.
"""

from collections.abc import Collection, Iterator, Sequence
from math import ceil

import numpy as np
import polars as pl

from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit

Scan = pl.LazyFrame | pl.DataFrame | Sequence[pl.LazyFrame]
"""One frame, or several with different checkpoints, to be worked through one after the other."""

ROWS = 500_000
"""Of a batch: ten checkpoints of WinoBias in five orders. 150 MB in the widest analysis."""

Place = tuple[str, int | None]
"""Run and step; null is a release."""


def batches(
    banks: Bank | Sequence[Bank],
    prompts: str,
    *,
    models: Collection[str] | None = None,
    steps: Collection[int | None] | None = None,
    rows: int = ROWS,
) -> list[pl.LazyFrame]:
    """`Bank.scan` of banks that hold a prompt set, in frames of about `rows` rows.

    A frame has whole checkpoints, and with them those of other models at the same run and step,
    which may be compared. Analyses take the list in a scan's place and give the same numbers.

    Parameters
    ----------
    models, steps
        Keep these checkpoints; all if None.

    Raises
    ------
    BankError
        As `Bank.scan`.
    """
    banks = [banks] if isinstance(banks, Bank) else banks
    held = [_sizes(bank, prompts, models, steps) for bank in banks]
    for bank, sizes in zip(banks, held, strict=True):
        if not sizes and (models is None or not any(held)):
            bank.scan(prompts, models=models, steps=steps)  # says what there is
    return [
        pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]
        for run, batch in _divided(held, rows)
        if (
            frames := [
                bank.scan(prompts, models=models, runs=run, steps=own)
                for bank, sizes in zip(banks, held, strict=True)
                if (own := [step for step in batch if (run, step) in sizes])
            ]
        )
    ]


def frames_of(scan: Scan) -> list[pl.LazyFrame]:
    """The frames of a scan, or the one.

    Raises
    ------
    UsageError
        There is none.
    """
    if isinstance(scan, pl.LazyFrame | pl.DataFrame):
        return [scan.lazy()]
    if not scan:
        raise UsageError("there is no frame to analyse; give a scan, or what `batches` gives")
    return [frame.lazy() for frame in scan]


def check_apart(parts: Sequence[pl.DataFrame]) -> None:
    """Raise UsageError where two frames of a scan, by their checkpoints, have the same one."""
    keys = pl.concat(part.select("model", "run", "step").unique() for part in parts)
    twice = keys.filter(pl.struct(pl.all()).is_duplicated()).sort(pl.all())
    if len(twice):
        model, run, step = twice.row(0)
        name = "release" if step is None else f"step {step}"
        raise UsageError(
            f"{model} {run} {name} is in several frames; each frame of a scan has checkpoints of "
            "its own, so concatenate those"
        )


def _sizes(
    bank: Bank, prompts: str, models: Collection[str] | None, steps: Collection[int | None] | None
) -> dict[Place, int]:
    """Rows at most of every run and step that a bank has."""
    counts = bank.prompts(prompts).group_by("query_set").len().collect()
    of_query_set: dict[str, int] = dict(counts.iter_rows())
    sizes: dict[Place, int] = {}
    for deposit in bank.deposits():
        if deposit.query_set in of_query_set and _wanted(deposit, models, steps):
            place = deposit.checkpoint.run, deposit.checkpoint.step
            sizes[place] = sizes.get(place, 0) + of_query_set[deposit.query_set]
    return sizes


def _wanted(
    deposit: Deposit, models: Collection[str] | None, steps: Collection[int | None] | None
) -> bool:
    checkpoint = deposit.checkpoint
    return (models is None or checkpoint.model in models) and (
        steps is None or checkpoint.step in steps
    )


def _divided(held: Sequence[dict[Place, int]], rows: int) -> Iterator[tuple[str, list[int | None]]]:
    """Runs with the steps of each batch, as even as can be."""
    sizes: dict[str, dict[int | None, int]] = {}
    for bank in held:
        for (run, step), size in bank.items():
            steps = sizes.setdefault(run, {})
            steps[step] = steps.get(step, 0) + size
    for run in sorted(sizes):
        own = sorted(sizes[run], key=lambda step: (step is None, step or 0))
        number = min(len(own), ceil(sum(sizes[run].values()) / rows))
        for part in np.array_split(np.arange(len(own)), max(number, 1)):
            yield run, [own[i] for i in part]
