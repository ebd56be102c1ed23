"""Apply a function to full vocabulary rows, block by block, in this process or on a Ray cluster."""

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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
Task = tuple[Deposit, range]
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
    tasks = [(deposit, rows) for deposit in deposits for rows in deposit.layout.row_ranges]
    return _join(tasks, function, ray)


def _join(
    tasks: Sequence[Task], function: Function, ray: str | None
) -> Iterator[tuple[Deposit, np.ndarray]]:
    """Each deposit with the values of all its tasks."""
    results = _on_cluster(tasks, function, ray) if ray else (apply(function, *t) for t in tasks)
    parts: list[np.ndarray] = []
    for (deposit, rows), values in zip(tasks, results, strict=True):
        parts.append(values)
        if rows.stop == deposit.layout.queries:
            yield deposit, np.concatenate(parts)
            parts = []


def _on_cluster(tasks: Iterable[Task], function: Function, address: str) -> Iterator[np.ndarray]:
    """Values of the tasks in order; two tasks per CPU are started ahead.

    Tasks that are no longer needed end by themselves, or with this process: Ray 2.60 aborts the
    process if a cancelled task completes meanwhile (task_manager.cc:1329).
    """
    with joined(address) as ray:
        options = {"num_cpus": 1, "max_retries": _RETRIES, "scheduling_strategy": "SPREAD"}
        task = ray.remote(**options)(_remote)
        shared = ray.put(function)
        ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        started = (task.remote(shared, deposit, rows) for deposit, rows in tasks)
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


def _remote(function: Function, deposit: Deposit, rows: range) -> np.ndarray:
    """`apply` on a machine of the cluster, which must have this deposit at the same path."""
    stored = deposit.stored
    try:
        same = read_attributes(stored.path) == stored.attributes
    except FileNotFoundError:
        same = False
    if not same:
        raise UsageError(
            f"{socket.gethostname()} does not see the deposit {stored.path}. All machines of a Ray"
            " cluster need the bank at the same path on one file system."
        )
    return apply(function, deposit, rows)


def apply(function: Function, deposit: Deposit, rows: range) -> np.ndarray:
    """The function's values for some rows of a deposit."""
    values = np.asarray(function(deposit.logprobs(np.arange(rows.start, rows.stop))))
    if values.shape[:1] != (len(rows),):
        raise UsageError(
            f"The function returned shape {values.shape} for {len(rows)} rows of {deposit}. Its"
            " first axis must be the rows."
        )
    return values
