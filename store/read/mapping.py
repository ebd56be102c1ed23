"""Apply a function to full vocabulary rows, block by block: here, in processes, or on a cluster."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from logitbank.errors import BankError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.cluster import joined
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen
from logitbank.store.read.readable import Readable

Function = Callable[[np.ndarray], ArrayLike]
_Submit = Callable[[Deposit, range], Callable[[], np.ndarray]]


def map_rows(
    bank: Readable | str | Path,
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
        The function gave another number of values than there were rows.
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
    bank = bank if isinstance(bank, Readable) else Bank.open(bank)
    deposits = [d for d in bank.deposits() if query_set in (None, d.query_set)]
    if not deposits:
        raise BankError(f"{bank.path} has no deposit{f' of {query_set}' if query_set else ''}")
    deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
    if workers < 1:
        raise UsageError(f"{workers} workers are not possible; use 1 or more")
    return _mapped(deposits, function, workers, ray)


def _mapped(
    deposits: Iterable[Deposit], function: Function, workers: int, ray: str | None
) -> Iterator[tuple[Deposit, np.ndarray]]:
    tasks = ((deposit, rows) for deposit in deposits for rows in deposit.layout.pieces)
    with ExitStack() as ends:
        submit, ahead = _submitter(function, workers, ray, ends)
        parts: list[np.ndarray] = []
        for deposit, part in _in_order(tasks, submit, ahead):
            parts.append(part)
            if sum(map(len, parts)) == deposit.layout.queries:
                yield deposit, np.concatenate(parts)
                parts = []


def _in_order(
    tasks: Iterable[tuple[Deposit, range]], submit: _Submit, ahead: int
) -> Iterator[tuple[Deposit, np.ndarray]]:
    """Results in the order of the tasks, of which so many are under way."""
    waiting: deque[tuple[Deposit, Callable[[], np.ndarray]]] = deque()
    for deposit, rows in tasks:
        waiting.append((deposit, submit(deposit, rows)))
        if len(waiting) > ahead:
            first, result = waiting.popleft()
            yield first, result()
    for first, result in waiting:
        yield first, result()


def _submitter(
    function: Function, workers: int, address: str | None, ends: ExitStack
) -> tuple[_Submit, int]:
    """What starts a task and gives what waits for it; and how many to start ahead."""
    if address is not None:
        ray: Any = ends.enter_context(joined(address))
        task = ray.remote(num_cpus=1, max_retries=10, scheduling_strategy="SPREAD")(_apply)
        shipped, pending = ray.put(function), set[Any]()

        def on_cluster(deposit: Deposit, rows: range) -> Callable[[], np.ndarray]:
            reference = task.remote(shipped, deposit, rows)
            pending.add(reference)

            def result() -> np.ndarray:
                values = np.asarray(ray.get(reference))
                pending.discard(reference)
                return values

            return result

        # Whoever stops early leaves a cluster that was there as it was.
        ends.callback(lambda: [ray.cancel(reference) for reference in pending])
        return on_cluster, 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    if workers == 1:
        return lambda deposit, rows: lambda: _apply(function, deposit, rows), 0
    # Forking is not safe where threads run, and Zarr's codecs have some.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    ends.callback(pool.shutdown, cancel_futures=True)
    return lambda deposit, rows: pool.submit(_apply, function, deposit, rows).result, 2 * workers


def _apply(function: Function, deposit: Deposit, rows: range) -> np.ndarray:
    """The function's values for some rows."""
    values = np.asarray(function(deposit.logprobs(np.arange(rows.start, rows.stop))))
    if values.shape[:1] != (len(rows),):
        raise UsageError(
            f"the function gave {values.shape} for {len(rows)} rows of {deposit}; its first axis"
            " must be that of the rows"
        )
    return values
