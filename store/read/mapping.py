"""Apply a function to full vocabulary rows, block by block: here, in processes, or on a cluster."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from logitbank.errors import BankError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen
from logitbank.store.read.tasks import in_order

Function = Callable[[np.ndarray], ArrayLike]


def map_rows(
    bank: Bank | str | Path,
    function: Function,
    *,
    query_set: str | None = None,
    models: Names = None,
    runs: Names = None,
    steps: Steps = None,
    workers: int = 1,
    ray: str | None = None,
) -> Iterator[tuple[Deposit, np.ndarray]]:
    """What a function makes of each row of each deposit, one deposit after the other.

    A block of rows, or a piece of one where they are worked out of states, is in memory at a time,
    in each worker; results are small or should be.

    Parameters
    ----------
    bank
        A bank, or where it is.
    function
        Takes log-probabilities (q, v), float32 nats, of some rows; gives (q, …), a value or a
        vector for each. Other processes need to import it, a cluster does not.
    query_set, models, runs, steps
        Keep these deposits; all if None. Models, runs and steps as in `Bank.scan`.
    workers
        Processes on this machine; 1 for this process.
    ray
        Address of a Ray cluster whose CPUs do it, all of which must see the bank: `HOST:PORT`, or
        `auto`. A task whose machine is lost is done again.

    Yields
    ------
    The deposit, and (q, …) for all rows of its query set.

    Raises
    ------
    UsageError
        The function gave another number of values than there were rows. Or a machine of the cluster
        does not see the bank.
    BankError
        Nothing is chosen, or a deposit is not complete.
    KeepLevelError
        A deposit keeps no full vocabulary rows.

    Examples
    --------
    The mean entropy of each checkpoint's predictions, in nats::

        def entropy(logprobs):
            return -(np.exp(logprobs) * logprobs).sum(axis=1)

        for deposit, values in logitbank.map_rows("pythia.zarr", entropy, ray="auto"):
            print(deposit.checkpoint, values.mean())
    """
    bank = bank if isinstance(bank, Bank) else Bank.open(bank, rows=True)
    deposits = [d for d in bank.deposits() if query_set in (None, d.query_set)]
    if not deposits:
        raise BankError(f"{bank.path} has no deposit{f' of {query_set}' if query_set else ''}")
    deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
    if workers < 1:
        raise UsageError(f"{workers} workers are not possible; use 1 or more")
    return _mapped(deposits, function, workers, ray)


def _mapped(
    deposits: Sequence[Deposit], function: Function, workers: int, ray: str | None
) -> Iterator[tuple[Deposit, np.ndarray]]:
    tasks = [([deposit], rows) for deposit in deposits for rows in deposit.layout.row_ranges]
    parts: list[np.ndarray] = []
    found = in_order(partial(_apply, function), tasks, workers=workers, ray=ray)
    for ((deposit,), rows), part in zip(tasks, found, strict=True):
        parts.append(part)
        if rows.stop == deposit.layout.queries:
            yield deposit, np.concatenate(parts)
            parts = []


def _apply(function: Function, deposits: Sequence[Deposit], rows: range) -> np.ndarray:
    """The function's values for some rows of a deposit."""
    (deposit,) = deposits
    values = np.asarray(function(deposit.logprobs(np.arange(rows.start, rows.stop))))
    if values.shape[:1] != (len(rows),):
        raise UsageError(
            f"the function gave {values.shape} for {len(rows)} rows of {deposit}; its first axis"
            " must be that of the rows"
        )
    return values
