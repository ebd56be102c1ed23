"""Carry out an extraction that is defined: plan, run, finish, and give account."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.engine.doing import step, steps_told
from logitbank.engine.plan.checks import check_space
from logitbank.engine.plan.extraction import Extraction, Prepared
from logitbank.engine.plan.parallel import ParallelConfig, Share, visible_devices
from logitbank.engine.plan.prepare import missing_blocks, prepare
from logitbank.engine.plan.sharding import agreement_path, own_shard
from logitbank.engine.run_log import RunLog
from logitbank.engine.sample import measure
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.prefetch import Prefetcher, download_bytes
from logitbank.engine.suites.suites import Suite, duplicate_notes, group_by_config
from logitbank.engine.workers.events import Note, OnEvent, Planned, Preparing, Summary
from logitbank.engine.workers.runner import Runner
from logitbank.engine.workers.stopping import Stopping
from logitbank.engine.workers.worker_process import WorkerProcess, log_of_run
from logitbank.errors import SuiteError, UsageError
from logitbank.store import Bank
from logitbank.store.change.rescore import rescore_all
from logitbank.store.cluster import joined
from logitbank.store.files.objects import holds_something
from logitbank.store.format.about import checked_fields

if TYPE_CHECKING:
    from logitbank.engine.workers.ray_worker import RayWorker


def run(
    path: str | Path,
    extraction: Extraction,
    *,
    about: Mapping[str, str] | None = None,
    dry_run: bool = False,
    spread: ParallelConfig = ParallelConfig(),  # noqa: B008 (frozen)
    disk_budget: int | None = None,
    hub: Hub | None = None,
    kept: Sequence[WorkerProcess] = (),
    stopping: Stopping | None = None,
    on_event: OnEvent = lambda _: None,
) -> Summary:
    """Carry out an extraction that is already defined. As `extract`.

    `kept` are workers that go on living when this run is over, so that their engine is there for
    the next; without them, the run makes its own. `stopping` is asked where somebody else looks at
    it too.
    """
    path, start = Path(path), time.monotonic()
    bank = Bank.open(path) if holds_something(path) else None
    if bank is not None:
        _check_about(bank, about or {})
    checkpoints = extraction.suite.checkpoints
    if hub is None and any(isinstance(c.source, HubSource) for c in checkpoints):
        hub = Hub()
    stopping = stopping or Stopping(at=spread.stop_at)

    def note(text: str) -> None:
        on_event(Note(text))

    def tell(text: str) -> None:
        on_event(Preparing(text))

    with stopping.on_sigterm(), ExitStack() as ends:
        use_log = ends.enter_context(log_of_run(path, alone=spread.shard is None and not kept))
        workers: Sequence[WorkerProcess | RayWorker] = kept
        if not (dry_run or kept):
            workers = _workers(path, extraction, spread, ends)
        fetcher = ends.enter_context(
            Prefetcher(
                checkpoints,
                hub,
                ahead=1 + len(workers),
                disk_budget=disk_budget,
            )
        )
        if not _seems_done(bank, extraction.suite):
            for worker in workers:
                worker.start()  # its imports take as long as planning
        gpu = workers[0].on_gpu if workers else bool(visible_devices(os.environ))
        with steps_told(tell), step("planning"):
            prepared = _prepare(bank, extraction, fetcher, note, gpu=gpu)
            extraction = replace(
                extraction, keep=prepared.keep, dtype=prepared.dtype, keep_auto=False
            )
            if spread.shard is not None:
                prepared = own_shard(path, prepared, extraction, spread.shard, dry_run=dry_run)
        notes = [*extraction.suite.notes]
        if hub is not None:
            notes += duplicate_notes(extraction.suite, hub)
        notes += prepared.notes
        on_event(Planned(prepared.plan, prepared.settings.engine, tuple(notes)))
        summary = Summary(
            prepared.plan, notes=notes, prefix_cache=prepared.settings.has_prefix_cache
        )
        lacking = {*prepared.plan.to_run}
        to_run = [c for c in checkpoints if c.id in lacking]
        downloads = download_bytes(path, to_run, hub, disk_budget=disk_budget)
        check_space(path, prepared, extraction, downloads=downloads)
        if dry_run:
            summary.models = len(group_by_config(extraction.suite, lacking, hub))
        if dry_run and prepared.plan.rows and spread.ray is None:  # there, on other machines
            share = Share(0, spread.workers)

            def make_worker(bank: Path) -> WorkerProcess:
                return WorkerProcess(bank, prepared.settings, share)

            estimate = measure(prepared, make_worker, workers=spread.workers)
            summary.estimate = replace(estimate, models=summary.models)
        if not dry_run:
            bank = bank or _created(path, about or {})
            with steps_told(tell):
                record_prompts(bank, prepared)
            for worker in workers:
                worker.use(prepared.settings)
            if prepared.plan.rows:
                use_log()
            try:
                with RunLog.of(path, extraction, prepared, spread, summary) as log:
                    follow = log.beside(on_event)
                    Runner(extraction, prepared, fetcher, workers, summary, follow, stopping).run()
                    if not summary.interrupted:
                        with steps_told(tell), step("sealing what is complete"):
                            _finish(bank, extraction.suite)
                        _forget_shares(bank, prepared, extraction, spread)
                        if not kept:
                            with ThreadPoolExecutor(len(workers)) as pool:
                                list(pool.map(lambda worker: worker.stop(), workers))
            except KeyboardInterrupt:
                summary.interrupted = True
    summary.seconds = time.monotonic() - start
    return summary


def _seems_done(bank: Bank | None, suite: Suite) -> bool:
    """Whether every checkpoint has a sealed deposit, so that there may be nothing for a worker.

    What it was asked is only known when the plan is made; a worker is started at its first job.
    """
    return bank is not None and all(
        any(deposit.sealed for deposit in bank.deposits(checkpoint.id))
        for checkpoint in suite.checkpoints
    )


def _workers(
    path: Path, extraction: Extraction, spread: ParallelConfig, ends: ExitStack
) -> Sequence["WorkerProcess | RayWorker"]:
    """The near sides of the workers; what of them is left at the end is killed."""
    handles: Sequence[WorkerProcess | RayWorker]
    if spread.ray is None:
        shares = [Share(i, spread.workers) for i in range(spread.workers)]
        handles = [WorkerProcess(path, extraction.settings, share) for share in shares]
    else:
        from logitbank.engine.workers.ray_worker import RayWorkers

        ray = ends.enter_context(joined(spread.ray))
        cluster = ends.enter_context(RayWorkers(ray, path, spread.workers))
        handles = cluster.handles(extraction.settings)
    for handle in handles:
        ends.enter_context(handle)
    return handles


def _created(path: Path, about: Mapping[str, str]) -> Bank:
    """A new bank, or the one that a run which started at the same time has just made."""
    checked_fields({**about})
    try:
        return Bank.create(path, **about)
    except UsageError:
        bank = Bank.open(path)
        _check_about(bank, about)
        return bank


def _check_about(bank: Bank, about: Mapping[str, str]) -> None:
    for name, value in about.items():
        if value and bank.attributes.get(name) != value:
            raise UsageError(
                f"{bank.path} is there, with {name} {bank.attributes.get(name)!r}; leave out"
                f" {name}, or change it with `logitbank describe {bank.path} --{name} …`"
            )


def _prepare(
    bank: Bank | None,
    extraction: Extraction,
    fetcher: Prefetcher,
    note: Callable[[str], None],
    *,
    gpu: bool,
) -> Prepared:
    """Plan by the first checkpoint whose config and tokenizer can be read."""
    refused: SuiteError | None = None
    # Not by all: each of 154 revisions of a hub that is out of reach fails slowly.
    for index in range(min(3, len(extraction.suite.checkpoints))):
        try:
            first = fetcher.folder(index, on_wait=note)
            return prepare(bank, extraction, first, gpu=gpu)
        except SuiteError as error:
            refused = refused or error
            fetcher.done(index)
    assert refused is not None
    raise refused


def record_prompts(bank: Bank, prepared: Prepared) -> None:
    """Put new query sets, prompts that point at their queries, and the tokens' texts into it."""
    for query_set in prepared.requested.placement.new:
        with step(f"writing {len(query_set):,} queries into the bank"):
            bank.add_query_set(query_set)
    for name, table in prepared.tables:
        with step(f"writing {table.height:,} rows of prompts of {name} into the bank"):
            bank.add_prompts(name, table)
    if prepared.tokenizer.digest not in bank.tokenizers:
        bank.add_tokens(prepared.tokenizer.digest, prepared.tokenizer.vocabulary())


def _forget_shares(
    bank: Bank, prepared: Prepared, extraction: Extraction, spread: ParallelConfig
) -> None:
    """Remove what the shares agreed on, once the bank has all of it."""
    if spread.shard is None:
        return
    if not any(missing_blocks(bank, extraction, prepared.requested)):
        agreement_path(bank.path, prepared, extraction, spread.shard).unlink(missing_ok=True)


def _finish(bank: Bank, suite: Suite) -> None:
    """Seal what was interrupted before its seal; read options that no pass listed from the rows."""
    deposits = [d for checkpoint in suite.checkpoints for d in bank.deposits(checkpoint.id)]
    for deposit in deposits:
        if deposit.complete and not deposit.sealed:
            with bank.begin(deposit.spec) as writer:
                writer.seal()
    # Options that other calls named for lower keep levels were refused when planning.
    rescore_all(bank.path, deposits)
