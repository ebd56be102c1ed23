"""The time that a plan will take, measured on a few queries in a temporary bank."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from logitbank.engine.backends.gpus import visible_devices
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.plan.prepare import Prepared
from logitbank.engine.weights.config_identity import config_fields
from logitbank.engine.workers.events import CheckpointDone, CheckpointFailed, Estimate, Job
from logitbank.engine.workers.pool import WorkerHandle, first_worker
from logitbank.errors import EngineError
from logitbank.store import Bank
from logitbank.store.format.layout import Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import CheckpointId, Query

_RUNS, _ON_CPU, _ON_GPU = 8, 64, 2048
"""Groups of neighbouring queries, and the largest number of queries. A GPU is only busy with large
batches: 64 short sequences take as long as 1,024."""
_BYTES = 2**28
"""Largest size of the sampled rows on a GPU, in a temporary folder."""
_PART = 12
"""At most one in so many rows of the plan is sampled. With the first job, of an eighth of these
rows, less than a tenth is scored."""


def sample(queries: Sequence[Query], count: int) -> list[Query]:
    """About `count` queries in groups of neighbours, which share prefixes as all queries do.

    Examples
    --------
    >>> [q.ids[0] for q in sample([Query((i,), 0) for i in range(100)], 24)]
    ... # doctest: +NORMALIZE_WHITESPACE
    [0, 1, 2, 3, 4, 5, 6, 7, 33, 34, 35, 36, 37, 38, 39, 40, 66, 67, 68, 69, 70, 71, 72, 73]
    """
    runs = max(1, min(_RUNS, count // 8))
    length = count // runs
    starts = [run * len(queries) // runs for run in range(runs)]
    indices = sorted({i for start in starts for i in range(start, start + length)})
    return [queries[i] for i in indices if i < len(queries)]


def measure(
    prepared: Prepared,
    *,
    workers: int,
    models: int,
) -> Estimate:
    """Score some of the planned queries on the first checkpoint with one of the `workers`.

    `models` is the number of different configs.

    Raises
    ------
    EngineError
        The engine failed, as it would in the run.
    """
    plan = prepared.plan
    largest = max(plan.deposits, key=lambda deposit: deposit.rows)
    limit = _ON_CPU
    if visible_devices(os.environ):
        limit = max(_ON_CPU, min(_ON_GPU, _BYTES // largest.layout.row_bytes))
    count = min(limit, max(2, plan.rows // _PART))
    queries = sample(prepared.query_sets[largest.query_set].queries, count)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="logitbank-") as folder:
        path = Path(folder) / "sample.zarr"
        bank = Bank.create(path)
        with first_worker(path, prepared.settings.start, workers) as worker:
            # The first job includes the start of the engine and everything that happens once.
            few = queries[: max(1, len(queries) // 8)]
            first = _run(worker, _job(bank, prepared, few, largest, step=0))
            first_s = time.monotonic() - start
            second = _run(worker, _job(bank, prepared, queries, largest, step=1))
    spent = second.spent
    load_s = first_s - sum(s for phase, s in first.spent.items() if phase != "load")
    tokens = sum(_tokens(d, prepared.query_sets[d.query_set]) for d in plan.deposits)
    return Estimate(
        start_s=models * load_s,
        fixed_s=len(plan.to_run) * (spent.get("swap", 0.0) + spent.get("write", 0.0)),
        score_s=tokens * spent.get("score", 0.0) / second.tokens,
        checkpoints=len(plan.to_run),
        tokens=tokens,
        workers=workers,
        rows=len(queries),
        sample_s=time.monotonic() - start,
    )


def _tokens(deposit: DepositPlan, query_set: QuerySet) -> int:
    rows = (row for block in deposit.blocks for row in deposit.layout.rows(block))
    return sum(len(query_set.queries[row].ids) for row in rows)


def _job(
    bank: Bank, prepared: Prepared, queries: Sequence[Query], planned: DepositPlan, *, step: int
) -> Job:
    name = bank.add_query_set(QuerySet(prepared.tokenizer.digest, tuple(queries)))
    layout = Layout.plan(
        queries=len(queries),
        vocab=planned.layout.vocab,
        dtype=planned.layout.dtype,
        keep=planned.layout.keep,
        width=planned.layout.width,
    )
    checkpoint = CheckpointId("sample", step=step)
    return Job(
        checkpoint,
        prepared.first,
        (DepositPlan(checkpoint, name, layout, tuple(range(layout.blocks))),),
        prepared.config.vocab,
        min(prepared.tokenizer.entries, prepared.config.vocab),
        {},
        prepared.settings,
        config_fields(prepared.first),
        checked=False,
    )


def _run(worker: WorkerHandle, job: Job) -> CheckpointDone:
    for event in worker.run(job):
        if isinstance(event, CheckpointFailed):
            raise EngineError(f"The sample failed: {event.message}")
        if isinstance(event, CheckpointDone):
            return event
    raise EngineError("The sample was stopped.")
