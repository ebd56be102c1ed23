"""How long a plan will take: measured on a few queries, in a bank that is thrown away."""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from logitbank.engine.plan.extraction import Prepared
from logitbank.engine.plan.parallel import visible_devices
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.weights.config_identity import config_fields
from logitbank.engine.workers.events import CheckpointDone, CheckpointFailed, Estimate
from logitbank.engine.workers.job import Job, WorkerHandle
from logitbank.errors import EngineError
from logitbank.store import Bank
from logitbank.store.format.layout import Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import CheckpointId, Query

_RUNS, _LENGTH = 8, 8
"""Queries are taken in runs of neighbours, which share beginnings as all of them do."""
_ON_A_GPU = 2048
"""Queries there, at most: two batches of 1,024, as 64 short sequences take about as long."""
_BYTES = 2**28
"""Of what is kept of them, at most, beyond 64: they lie in a temporary folder."""
_SHARE = 12
"""One in so many of a plan's rows is scored at most; the first job adds an eighth, which makes a
tenth."""


def sampled(queries: tuple[Query, ...], runs: int = _RUNS, length: int = _LENGTH) -> list[Query]:
    """Some of the queries: runs of neighbours, at equal distances.

    Examples
    --------
    >>> [q.ids[0] for q in sampled(tuple(Query((i,), 0) for i in range(100)), runs=3, length=2)]
    [0, 1, 33, 34, 66, 67]
    """
    starts = [run * len(queries) // runs for run in range(runs)]
    wanted = sorted({i for start in starts for i in range(start, start + length)})
    return [queries[i] for i in wanted if i < len(queries)]


def extent(rows: int, most: int = _RUNS * _LENGTH) -> tuple[int, int]:
    """How many runs, of how many queries each, are measured for a plan of so many rows.

    Examples
    --------
    >>> extent(100_000), extent(300), extent(60), extent(1)
    ((8, 8), (3, 8), (1, 5), (1, 2))
    >>> extent(100_000, 2048), extent(1_200, 2048)
    ((8, 256), (8, 12))
    """
    count = min(most, max(2, rows // _SHARE))
    runs = max(1, min(_RUNS, count // _LENGTH))
    return runs, count // runs


def most_queries(row_bytes: int, *, on_gpu: bool) -> int:
    """How many queries are measured at most, where so many bytes are kept of each.

    Examples
    --------
    >>> most_queries(100_608, on_gpu=False), most_queries(100_608, on_gpu=True)
    (64, 2048)
    >>> most_queries(4 * 262_144, on_gpu=True)
    256
    """
    few = _RUNS * _LENGTH
    return max(few, min(_ON_A_GPU, _BYTES // row_bytes)) if on_gpu else few


def measure(
    prepared: Prepared,
    make_worker: Callable[[Path], AbstractContextManager[WorkerHandle]],
    *,
    workers: int,
) -> Estimate:
    """Score a few of the planned queries on the first checkpoint, and reckon from that.

    They are at most 72, 2,304 on a GPU, and less than a tenth of the plan wherever that has more
    than 20 rows.
    Nothing is left behind. `make_worker` is called with the bank that is thrown away.

    Raises
    ------
    EngineError
        The engine failed; so it would in the run.
    """
    planned = prepared.plan.deposits
    largest = max(planned, key=lambda deposit: deposit.rows)
    on_gpu = bool(visible_devices(os.environ))
    most = most_queries(largest.layout.row_bytes, on_gpu=on_gpu)
    all_queries = prepared.requested.query_sets[largest.query_set].queries
    queries = sampled(all_queries, *extent(prepared.plan.rows, most))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="logitbank-") as folder:
        path = Path(folder) / "sample.zarr"
        bank = Bank.create(path)
        with make_worker(path) as worker:
            # The first job pays for the engine's start and whatever it does only once.
            first, second = (
                _run(worker, _job(bank, prepared, some, outputs=planned, step=step))
                for step, some in enumerate((queries[: max(1, len(queries) // 8)], queries))
            )
    if not second.tokens:  # the only query: its answer was copied, as the weights are the same
        second = first
    spent = second.spent
    return Estimate(
        load_s=first.spent.get("load", 0.0),
        checkpoint_s=spent.get("swap", 0.0) + spent.get("write", 0.0),
        tokens_per_s=second.tokens / max(spent.get("score", 0.0), 1e-9),
        checkpoints=len(prepared.plan.to_run),
        tokens=sum(
            _tokens(deposit, prepared.requested.query_sets[deposit.query_set])
            for deposit in planned
        ),
        workers=workers,
        rows=len(queries),
        sample_s=time.monotonic() - start,
    )


def _tokens(deposit: DepositPlan, query_set: QuerySet) -> int:
    rows = (row for block in deposit.blocks for row in deposit.layout.rows(block))
    return sum(len(query_set.queries[row].ids) for row in rows)


def _job(
    bank: Bank,
    prepared: Prepared,
    queries: list[Query],
    *,
    outputs: tuple[DepositPlan, ...],
    step: int,
) -> Job:
    query_set = QuerySet(prepared.tokenizer.digest, tuple(queries))
    name = bank.add_query_set(query_set)
    layouts = {
        prepared.requested.query_sets[d.query_set].queries[0].head: d.layout for d in outputs
    }
    planned = layouts[queries[0].head]
    layout = Layout.plan(
        queries=len(queries),
        vocab=planned.vocab,
        dtype=planned.dtype,
        keep=planned.keep,
        width=planned.width,
    )
    checkpoint = CheckpointId("sample", step=step)
    return Job(
        checkpoint,
        prepared.first,
        (DepositPlan(checkpoint, name, layout, tuple(range(layout.blocks))),),
        prepared.requested.config.vocab,
        min(prepared.tokenizer.entries, prepared.requested.config.vocab),
        {},
        replace(prepared.settings, canary_every=0),
        config_fields(prepared.first),
    )


def _run(worker: WorkerHandle, job: Job) -> CheckpointDone:
    for event in worker.run(job):
        if isinstance(event, CheckpointFailed):
            raise EngineError(f"the sample failed: {event.message}")
        if isinstance(event, CheckpointDone):
            return event
    raise EngineError("the sample was stopped")
