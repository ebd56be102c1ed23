"""Apply a function to full vocabulary rows, block by block, in this process or on a Ray cluster."""

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from logitbank.errors import BankError, UsageError
from logitbank.store.bank import Bank, open_bank
from logitbank.store.cluster import joined
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.attributes import read_attributes
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen

Function = Callable[[np.ndarray], ArrayLike]
Comparison = Callable[[Iterator[np.ndarray]], ArrayLike]
Task = tuple[Sequence[Deposit], range]
_RETRIES = 10
"""Times that Ray repeats a task whose machine was lost."""


def map_rows(
    bank: Bank | str | Path,
    function: Function,
    *,
    query_set: str | None = None,
    models: Names = None,
    runs: Names = None,
    steps: Steps = None,
    ray: str | None = None,
) -> Iterator[tuple[Deposit, np.ndarray]]:
    """Apply a function to all rows of each deposit, one deposit after the other.

    Memory holds one block of rows at a time, or part of one if rows are computed from states.

    Parameters
    ----------
    bank
        A bank, its folder or its URL.
    function
        Takes log-probabilities (q, v), float32 nats, of some rows, and returns (q, …): a value or
        a vector per row.
    query_set, models, runs, steps
        Keep these deposits; all if None. Models, runs and steps as in `Bank.scan`.
    ray
        Address of a Ray cluster whose CPUs do the work: `HOST:PORT`, or `auto` for this cluster or
        machine. All its machines must see the bank. Ray repeats tasks of lost machines.

    Yields
    ------
    The deposit, and (q, …) for all rows of its query set.

    Raises
    ------
    UsageError
        The function returned another number of values than rows, or a machine of the cluster does
        not see the bank.
    BankError
        No deposit is selected, or one is not complete.
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
    bank = open_bank(bank, rows=True)
    bank = replace(bank, path=bank.path.absolute())  # for processes in other folders
    deposits = [d for d in bank.deposits() if query_set in (None, d.query_set)]
    if not deposits:
        raise BankError(f"{bank.path} has no deposit{f' of {query_set}' if query_set else ''}.")
    deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
    single = partial(_of_one, function)
    return _beside(deposits, map_together([[each] for each in deposits], single, ray=ray))


def _beside(
    deposits: Sequence[Deposit], results: Iterator[np.ndarray]
) -> Iterator[tuple[Deposit, np.ndarray]]:
    yield from zip(deposits, results, strict=True)


def _of_one(function: Function, values: Iterator[np.ndarray]) -> ArrayLike:
    return function(next(values))


def map_together(
    groups: Iterable[Sequence[Deposit]],
    function: Comparison,
    *,
    rows: int | None = None,
    ray: str | None = None,
    threads: int = 1,
) -> Iterator[np.ndarray]:
    """Apply a function to the same rows of several deposits, one group after the other.

    Parameters
    ----------
    groups
        Deposits of one query set, and of one number of outputs.
    function
        Takes an iterator of log-probabilities (q, v), float32 nats: the same rows of each deposit
        of a group, each read when it is needed. Returns (q, …).
    rows
        Most rows that a call of the function gets; a whole block if None.
    ray
        As for `map_rows`.
    threads
        Calls of the function at a time in this process. NumPy lets other threads work.

    Yields
    ------
    (q, …) for all rows of each group's query set. Raises as `map_rows`.
    """
    tasks = [
        (group, range(start, min(start + (rows or len(block)), block.stop)))
        for group in groups
        for block in group[0].layout.row_ranges
        for start in range(block.start, block.stop, rows or len(block))
    ]
    return _join(tasks, function, ray, threads)


def _join(
    tasks: Sequence[Task], function: Comparison, ray: str | None, threads: int
) -> Iterator[np.ndarray]:
    """The values of all tasks of each group."""
    if ray:
        results = _on_cluster(tasks, function, ray)
    elif threads > 1:
        results = _in_threads(tasks, function, threads)
    else:
        results = (apply(function, *task) for task in tasks)
    parts: list[np.ndarray] = []
    for (group, rows), values in zip(tasks, results, strict=True):
        parts.append(values)
        if rows.stop == group[0].layout.queries:
            yield np.concatenate(parts)
            parts = []


def _in_threads(tasks: Iterable[Task], function: Comparison, threads: int) -> Iterator[np.ndarray]:
    """Values of the tasks in order; none is started before a thread is free."""
    with ThreadPoolExecutor(threads) as pool:
        started = (pool.submit(apply, function, group, rows) for group, rows in tasks)
        waiting = deque(islice(started, threads))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(islice(started, 1))


def _on_cluster(tasks: Iterable[Task], function: Comparison, address: str) -> Iterator[np.ndarray]:
    """Values of the tasks in order; two tasks per CPU are started ahead.

    Tasks that are no longer needed end by themselves, or with this process: Ray 2.60 aborts the
    process if a cancelled task completes meanwhile (task_manager.cc:1329).
    """
    with joined(address) as ray:
        options = {"num_cpus": 1, "max_retries": _RETRIES, "scheduling_strategy": "SPREAD"}
        task = ray.remote(**options)(_remote)
        shared = ray.put(function)
        ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        started = (task.remote(shared, group, rows) for group, rows in tasks)
        waiting = deque(islice(started, ahead + 1))
        while waiting:
            try:
                yield ray.get(waiting.popleft())
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None  # as this process would raise it
            except ray.exceptions.RayError as error:
                reason = str(error).strip().partition("\n")[0]
                raise BankError(
                    f"A task of the Ray cluster failed {_RETRIES + 1} times ({reason}). Give its"
                    " machines more memory, or leave out --ray."
                ) from error
            waiting.extend(islice(started, 1))


def _remote(function: Comparison, group: Sequence[Deposit], rows: range) -> np.ndarray:
    """`apply` on a machine of the cluster, which must have these deposits at the same paths."""
    for deposit in group:
        try:
            same = read_attributes(deposit.path) == deposit.attributes
        except FileNotFoundError:
            same = False
        if not same:
            raise UsageError(
                f"{socket.gethostname()} does not see the deposit {deposit.path}. All machines of a"
                " Ray cluster need the bank at the same path on one file system."
            )
    return apply(function, group, rows)


def apply(function: Comparison, group: Sequence[Deposit], rows: range) -> np.ndarray:
    """The function's values for some rows of the deposits of a group."""
    index = np.arange(rows.start, rows.stop)
    values = np.asarray(function(deposit.logprobs(index) for deposit in group))
    if values.shape[:1] != (len(rows),):
        raise UsageError(
            f"The function returned shape {values.shape} for {len(rows)} rows of {group[0]}. Its"
            " first axis must be the rows."
        )
    return values
