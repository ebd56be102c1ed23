"""Carry out an extraction that is defined: plan, run, finish, and give account."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from logitbank.engine.doing import step, steps_told
from logitbank.engine.plan.checks import check_space
from logitbank.engine.plan.extraction import Extraction, Prepared
from logitbank.engine.plan.parallel import visible_devices
from logitbank.engine.plan.prepare import missing_blocks, prepare
from logitbank.engine.plan.sharding import agreement_path, own_shard
from logitbank.engine.run_log import RunLog
from logitbank.engine.sample import measure
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.prefetch import Prefetcher, download_bytes
from logitbank.engine.suites.suites import Suite, duplicate_notes, group_by_config
from logitbank.engine.workers.events import Note, OnEvent, Planned, Preparing, Summary
from logitbank.engine.workers.pool import Pool, first_worker, open_pool
from logitbank.engine.workers.runner import Runner
from logitbank.engine.workers.stopping import Stopping
from logitbank.engine.workers.worker_process import log_of_run
from logitbank.errors import SuiteError, UsageError
from logitbank.store import Bank
from logitbank.store.change.rescore import rescore_all
from logitbank.store.files.objects import holds_something
from logitbank.store.format.about import checked_fields


def run(
    path: str | Path,
    extraction: Extraction,
    *,
    dry_run: bool = False,
    hub: Hub | None = None,
    pool: Pool | None = None,
    stopping: Stopping | None = None,
    on_event: OnEvent = lambda _: None,
) -> Summary:
    """Plan an extraction and execute the plan, or in a dry run estimate its time. As `extract`.

    `pool` and `stopping` are those of a caller that goes on when this run is over.
    """
    path, start = Path(path), time.monotonic()
    bank = Bank.open(path) if holds_something(path) else None
    if bank is not None:
        _check_about(bank, extraction.about)
    if hub is None and any(isinstance(c.source, HubSource) for c in extraction.suite.checkpoints):
        hub = Hub()
    parallel = extraction.parallel
    stopping = stopping or Stopping(at=parallel.stop_at)
    with stopping.on_sigterm(), ExitStack() as ends:
        alone = parallel.shard is None and pool is None
        use_log = ends.enter_context(log_of_run(path, alone=alone))
        own = None
        if pool is None and not dry_run:
            own = pool = ends.enter_context(open_pool(path, extraction.settings, parallel))
        ahead = 1 + (0 if pool is None else len(pool.workers))
        budget = extraction.disk_budget
        checkpoints = extraction.suite.checkpoints
        fetcher = ends.enter_context(Prefetcher(checkpoints, hub, ahead=ahead, disk_budget=budget))
        if pool is not None and not _seems_done(bank, extraction.suite):
            pool.start()  # its imports take as long as planning
        gpu = bool(visible_devices(os.environ)) if pool is None else pool.on_gpu
        extraction, prepared = make_plan(
            path, bank, extraction, fetcher, dry_run=dry_run, gpu=gpu, on_event=on_event
        )
        summary = _planned(extraction, prepared, hub, on_event)
        missing = {*prepared.plan.to_run}
        to_run = [c for c in checkpoints if c.id in missing]
        downloads = download_bytes(path, to_run, hub, disk_budget=budget)
        check_space(path, prepared, extraction, downloads=downloads)
        if dry_run:
            _estimate(summary, extraction, prepared, hub)
        else:
            assert pool is not None
            bank = bank or _created(path, extraction.about)
            with steps_told(lambda text: on_event(Preparing(text))):
                record_prompts(bank, prepared)
            pool.use(prepared.settings)
            if prepared.plan.rows:
                use_log()
            with suppress(KeyboardInterrupt):
                _execute(bank, extraction, prepared, fetcher, pool, summary, stopping, on_event)
                if own is not None and not summary.interrupted:
                    own.stop()
    summary.seconds = time.monotonic() - start
    return summary


def make_plan(
    path: Path,
    bank: Bank | None,
    extraction: Extraction,
    fetcher: Prefetcher,
    *,
    dry_run: bool,
    gpu: bool,
    on_event: OnEvent,
) -> tuple[Extraction, Prepared]:
    """What is to be run, and the extraction with all that it left open decided."""

    def note(text: str) -> None:
        on_event(Note(text))

    with steps_told(lambda text: on_event(Preparing(text))), step("planning"):
        prepared = _prepare(bank, extraction, fetcher, note, gpu=gpu)
        extraction = replace(extraction, keep=prepared.keep, dtype=prepared.dtype, keep_auto=False)
        shard = extraction.parallel.shard
        if shard is not None:
            prepared = own_shard(path, prepared, extraction, shard, dry_run=dry_run)
    return extraction, prepared


def _planned(
    extraction: Extraction, prepared: Prepared, hub: Hub | None, on_event: OnEvent
) -> Summary:
    """The summary of a run that is planned, with its notes."""
    notes = [*extraction.suite.notes]
    if hub is not None:
        notes += duplicate_notes(extraction.suite, hub)
    notes += prepared.notes
    on_event(Planned(prepared.plan, prepared.settings.engine, tuple(notes)))
    return Summary(prepared.plan, notes=notes, prefix_cache=prepared.settings.has_prefix_cache)


def _estimate(
    summary: Summary, extraction: Extraction, prepared: Prepared, hub: Hub | None
) -> None:
    """Measure a sample of the plan; not for a cluster, whose machines are others."""
    parallel = extraction.parallel
    summary.models = len(group_by_config(extraction.suite, {*prepared.plan.to_run}, hub))
    if not prepared.plan.rows or parallel.ray is not None:
        return
    workers = parallel.workers
    make_worker = partial(first_worker, settings=prepared.settings, count=workers)
    estimate = measure(prepared, make_worker, workers=workers)
    summary.estimate = replace(estimate, models=summary.models)


def _execute(
    bank: Bank,
    extraction: Extraction,
    prepared: Prepared,
    fetcher: Prefetcher,
    pool: Pool,
    summary: Summary,
    stopping: Stopping,
    on_event: OnEvent,
) -> None:
    """Run the plan, and seal what is complete."""
    try:
        with RunLog.of(bank.path, extraction, prepared, summary) as log:
            follow = log.beside(on_event)
            Runner(extraction, prepared, fetcher, pool, summary, follow, stopping).run()
            if not summary.interrupted:
                with (
                    steps_told(lambda text: on_event(Preparing(text))),
                    step("sealing what is complete"),
                ):
                    _finish(bank, extraction.suite)
                _forget_agreement(bank, prepared, extraction)
    except KeyboardInterrupt:
        summary.interrupted = True
        raise


def _seems_done(bank: Bank | None, suite: Suite) -> bool:
    """Whether every checkpoint has a sealed deposit, so that there may be nothing for a worker.

    What it was asked is only known when the plan is made; a worker is started at its first job.
    """
    return bank is not None and all(
        any(deposit.sealed for deposit in bank.deposits(checkpoint.id))
        for checkpoint in suite.checkpoints
    )


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


def _forget_agreement(bank: Bank, prepared: Prepared, extraction: Extraction) -> None:
    """Remove what the shards agreed on, once the bank has all of it."""
    shard = extraction.parallel.shard
    if shard is not None and not any(missing_blocks(bank, extraction, prepared.requested)):
        agreement_path(bank.path, prepared, extraction, shard).unlink(missing_ok=True)


def _finish(bank: Bank, suite: Suite) -> None:
    """Seal what was interrupted before its seal; read options that no pass listed from the rows."""
    deposits = [d for checkpoint in suite.checkpoints for d in bank.deposits(checkpoint.id)]
    for deposit in deposits:
        if deposit.complete and not deposit.sealed:
            with bank.begin(deposit.spec) as writer:
                writer.seal()
    # Options that other calls named for lower keep levels were refused when planning.
    rescore_all(bank.path, deposits)
