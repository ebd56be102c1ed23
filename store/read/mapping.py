"""Apply a function to full vocabulary rows, block by block: here, in processes, or on a cluster."""

import multiprocessing
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from logitbank.errors import BankError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.cluster import joined
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.attributes import read_attributes
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen

Function = Callable[[np.ndarray], ArrayLike]
_Submit = Callable[[Deposit, range], Callable[[], np.ndarray]]
"""Starts the function on some rows of a deposit, and returns what waits for its values."""
_RETRIES = 10
"""Machines that a task may lose."""


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
    tasks = [(deposit, rows) for deposit in deposits for rows in deposit.layout.row_ranges]
    parts: list[np.ndarray] = []
    with _submitter(function, workers, ray) as (submit, ahead):
        waiting: deque[Callable[[], np.ndarray]] = deque()
        started = iter(tasks)
        for deposit, rows in tasks:
            while len(waiting) <= ahead and (task := next(started, None)) is not None:
                waiting.append(submit(*task))
            parts.append(waiting.popleft()())
            if rows.stop == deposit.layout.queries:
                yield deposit, np.concatenate(parts)
                parts = []


@contextmanager
def _submitter(
    function: Function, workers: int, address: str | None
) -> Iterator[tuple[_Submit, int]]:
    """What starts a task, and how many tasks to start ahead of the one that is waited for."""
    if address is not None:
        with joined(address) as ray:
            # Tasks that nobody waits for any more end by themselves, or with this process. Ray 2.60
            # aborts this process when a cancelled task completes meanwhile
            # (task_manager.cc:1329, "Tried to complete task that was not pending").
            yield (
                _on_cluster(function, ray),
                2 * max(1, int(ray.cluster_resources().get("CPU", 1))),
            )
    elif workers == 1:
        yield lambda deposit, rows: lambda: _apply(function, deposit, rows), 0
    else:
        # Forking is not safe where threads run, and Zarr's codecs have some.
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        try:
            yield (
                lambda deposit, rows: pool.submit(_apply, function, deposit, rows).result,
                2 * workers,
            )
        finally:
            pool.shutdown(cancel_futures=True)


def _on_cluster(function: Function, ray: Any) -> _Submit:
    task = ray.remote(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")(_elsewhere)
    shipped = ray.put(function)

    def submit(deposit: Deposit, rows: range) -> Callable[[], np.ndarray]:
        reference = task.remote(shipped, deposit.absolute(), rows)

        def result() -> np.ndarray:
            try:
                values: np.ndarray = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None  # as it would be raised here
            except ray.exceptions.RayError as error:
                reason = str(error).strip().partition("\n")[0]
                raise BankError(
                    f"a task of the Ray cluster was lost {_RETRIES + 1} times, or cannot be done"
                    f" again ({reason}); give its machines more memory, or leave out --ray"
                ) from error
            return values

        return result

    return submit


def _elsewhere(function: Function, deposit: Deposit, rows: range) -> np.ndarray:
    """`_apply` on a machine of the cluster, which must have this deposit at the same path."""
    stored = deposit.stored
    try:
        same = read_attributes(stored.path) == stored.attributes
        what = "has another deposit at"
    except FileNotFoundError:
        same, what = False, "does not see"
    if not same:
        raise UsageError(
            f"{socket.gethostname()} {what} {stored.path} of the machine that asked; all machines"
            " of a Ray cluster need the bank at the same path on one file system"
        )
    return _apply(function, deposit, rows)


def _apply(function: Function, deposit: Deposit, rows: range) -> np.ndarray:
    """The function's values for some rows of a deposit."""
    values = np.asarray(function(deposit.logprobs(np.arange(rows.start, rows.stop))))
    if values.shape[:1] != (len(rows),):
        raise UsageError(
            f"the function gave {values.shape} for {len(rows)} rows of {deposit}; its first axis"
            " must be that of the rows"
        )
    return values
