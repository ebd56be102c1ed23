"""Work on deposits: done here, in processes, or by tasks of a Ray cluster. Results are in order.

A task may be done again on another machine: it reads, and writes nothing that is not written whole.
"""

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from logitbank.errors import BankError, UsageError
from logitbank.store.cluster import joined
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.attributes import read_attributes

A = TypeVar("A")
R = TypeVar("R")
Work = Callable[[Sequence[Deposit], A], R]
"""What is done with some deposits, and whatever else a task names."""
_Submit = Callable[[Sequence[Deposit], A], Callable[[], R]]
_RETRIES = 10
"""Machines that a task may lose."""


def in_order(
    work: Work[A, R],
    tasks: Iterable[tuple[Sequence[Deposit], A]],
    *,
    workers: int = 1,
    ray: str | None = None,
) -> Iterator[R]:
    """What work makes of each task, in the order of the tasks.

    Parameters
    ----------
    workers
        Processes on this machine; 1 for this process, which does a task when its result is wanted.
    ray
        Address of a Ray cluster whose CPUs do it in place of this machine. A task whose machine is
        lost is done again on another.

    Raises UsageError: a machine of the cluster does not see the deposits.
    Raises BankError: a task was lost with one machine after another.
    """
    with ExitStack() as ends:
        submit, ahead = _submitter(work, workers, ray, ends)
        waiting: deque[Callable[[], R]] = deque()
        for deposits, rest in tasks:
            waiting.append(submit(deposits, rest))
            if len(waiting) > ahead:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()


def _submitter(
    work: Work[A, R], workers: int, address: str | None, ends: ExitStack
) -> tuple[_Submit[A, R], int]:
    """What starts a task and gives what waits for it; and how many to start ahead."""
    if address is not None:
        return _on_cluster(work, ends.enter_context(joined(address)))
    if workers == 1:
        return lambda deposits, rest: lambda: work(deposits, rest), 0
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Forking is not safe where threads run, and Zarr's codecs have some.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    ends.callback(pool.shutdown, cancel_futures=True)
    return lambda deposits, rest: pool.submit(work, deposits, rest).result, 2 * workers


def _on_cluster(work: Work[A, R], ray: Any) -> tuple[_Submit[A, R], int]:
    task = ray.remote(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")(_elsewhere)
    shipped = ray.put(work)

    def submit(deposits: Sequence[Deposit], rest: A) -> Callable[[], R]:
        reference = task.remote(shipped, [deposit.absolute() for deposit in deposits], rest)

        def result() -> R:
            try:
                found: R = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None  # as it would be raised here
            except ray.exceptions.RayError as error:
                reason = str(error).strip().partition("\n")[0]
                raise BankError(
                    f"a task of the Ray cluster was lost {_RETRIES + 1} times, or cannot be done"
                    f" again ({reason}); give its machines more memory, or leave out --ray"
                ) from error
            return found

        return result

    # What was begun and is not wanted any more ends by itself, or with this process. Cancelled, it
    # aborts this process where it completes meanwhile (Ray 2.60, task_manager.cc:1329, "Tried to
    # complete task that was not pending"), and no error would be told.
    return submit, 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))


def _elsewhere(work: Work[A, R], deposits: Sequence[Deposit], rest: A) -> R:
    for deposit in deposits:
        _require_seen(deposit.stored)
    return work(deposits, rest)


def _require_seen(deposit: Deposit) -> None:
    """Refuse where this machine has no such deposit at its path, or another one."""
    try:
        same = read_attributes(deposit.path) == deposit.attributes
        what = "has another deposit at"
    except FileNotFoundError:
        same, what = False, "does not see"
    if not same:
        raise UsageError(
            f"{socket.gethostname()} {what} {deposit.path} of the machine that asked; all machines"
            " of a Ray cluster need the bank at the same path on one file system"
        )
