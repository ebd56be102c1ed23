"""Run a request: make its plan, execute it, and report what happened."""

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from logitbank.engine.plan.cards import listed_cards, share_memory
from logitbank.engine.plan.checks import check_space
from logitbank.engine.plan.engine_choice import engine_settings
from logitbank.engine.plan.parallel import ParallelConfig, visible_devices
from logitbank.engine.plan.prepare import Prepared, Progress, make_plan
from logitbank.engine.request import ExtractRequest
from logitbank.engine.run_log import RunLog, run_description
from logitbank.engine.sample import measure
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.prefetch import Prefetcher, download_bytes, parse_bytes
from logitbank.engine.suites.suites import Checkpoint, LocalSource, Suite, group_by_config
from logitbank.engine.workers.events import (
    CheckpointFailed,
    Note,
    OnEvent,
    Planned,
    Preparing,
    Summary,
)
from logitbank.engine.workers.pool import Pool, first_worker, open_pool
from logitbank.engine.workers.runner import Runner
from logitbank.engine.workers.stopping import Stopping
from logitbank.errors import LogitbankError, SuiteError, UsageError
from logitbank.store import Bank
from logitbank.store.change.rescore import rescore_all
from logitbank.store.files.objects import is_occupied
from logitbank.store.read.copied_weights import copied_weights
from logitbank.store.tables.prompt_tables import write_set
from logitbank.store.tables.token_texts import tokens_files
from logitbank.wording import counted


def run(
    path: str | Path,
    request: ExtractRequest,
    *,
    parallel: ParallelConfig | None = None,
    dry_run: bool = False,
    hub: Hub | None = None,
    pool: Pool | None = None,
    stopping: Stopping | None = None,
    on_event: OnEvent = lambda _: None,
) -> Summary:
    """Execute a request whose suite is a Suite, or in a dry run estimate its time. See `extract`.

    `pool` and `stopping` belong to a caller that continues after this run.
    """
    path, start = Path(path), time.monotonic()
    suite = request.suite
    assert isinstance(suite, Suite)
    bank = Bank.open(path) if is_occupied(path) else None
    if hub is None and any(isinstance(c.source, HubSource) for c in suite.checkpoints):
        hub = Hub()
    adapter_source, adapter_folder = _adapter_source(request.adapter_from, hub)
    settings = engine_settings(request, adapter_folder)
    if parallel is None:
        workers, shard, ray = request.workers, request.shard, request.ray
        parallel = ParallelConfig.detect(workers=workers, shard=shard, ray=ray)
    budget = None if request.disk_budget is None else parse_bytes(request.disk_budget)
    stopping = stopping or Stopping(deadline=parallel.job_end)
    report_progress = _progress(on_event)
    with stopping.on_sigterm(), ExitStack() as stack:
        new_pool = None
        if pool is None and not dry_run:
            new_pool = pool = stack.enter_context(open_pool(path, settings, parallel))
        ahead = 1 + (0 if pool is None else len(pool.workers))
        fetcher = Prefetcher(suite.checkpoints, hub, ahead=ahead, disk_budget=budget)
        stack.enter_context(fetcher)
        if pool is not None and not _seems_done(bank, suite):
            pool.start()  # its imports take as long as planning
        cards = () if parallel.ray is not None else listed_cards(os.environ)
        plan = partial(
            make_plan,
            request,
            bank,
            settings=settings,
            shard=parallel.shard,
            gpu=bool(visible_devices(os.environ)) if pool is None else pool.on_gpu,
            cards=cards,
            progress=report_progress,
        )
        prepared = _plan_by_first(plan, fetcher, len(suite.checkpoints), on_event)
        prepared = replace(prepared, adapter_source=adapter_source)
        # The engines of a pool that runs already have taken their memory.
        if prepared.plan.rows and (pool is None or pool is new_pool):
            devices = max(1, len(visible_devices(os.environ)))
            settings = share_memory(
                *(prepared.settings, prepared.first, prepared.config, cards),
                engines=-(-parallel.workers // devices),
            )
            prepared = replace(prepared, settings=settings)
        summary = _planned(prepared, on_event)
        missing = {*prepared.plan.to_run}
        to_run = [c for c in suite.checkpoints if c.id in missing]
        downloads = download_bytes(path, to_run, hub, disk_budget=budget)
        check_space(path, prepared.plan, downloads=downloads)
        problems = file_problems(prepared, to_run, hub, report_progress)
        if dry_run:
            for failure in problems:
                summary.failed.append(failure)
                on_event(failure)
            _estimate(summary, prepared, parallel, hub)
        else:
            assert pool is not None
            bank = bank or _create(path)
            record_prompts(bank, prepared, report_progress)
            pool.use(prepared.settings)
            log = RunLog(path, summary, run_description(prepared, parallel, summary))
            with suppress(KeyboardInterrupt):
                follow = log.follow(on_event)
                runner = Runner(prepared, fetcher, pool, summary, follow, stopping, problems)
                _execute(runner, bank, suite, log, summary, report_progress)
                if new_pool is not None and not summary.interrupted:
                    new_pool.stop()
    summary.seconds = time.monotonic() - start
    return summary


def _progress(on_event: OnEvent) -> Progress:
    return lambda step: on_event(Preparing(step))


def _adapter_source(
    spec: str | Path | None, hub: Hub | None
) -> tuple[LocalSource | HubSource | None, Path | None]:
    """The checkpoint of the borrowed language adapters, and its folder."""
    if spec is None:
        return None, None
    if (folder := Path(spec).expanduser()).is_dir():
        return LocalSource(folder), folder
    spec = str(spec)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec, re.ASCII):
        raise SuiteError(f"--adapter-from {spec!r} is invalid: use a folder, or owner/repo.")
    source = HubSource(spec, "main")
    return source, (hub or Hub()).fetch(source)


def _plan_by_first(
    plan: Callable[[Path], Prepared], fetcher: Prefetcher, checkpoints: int, on_event: OnEvent
) -> Prepared:
    """Plan with the first usable one of the first three checkpoints."""
    first_error: SuiteError | None = None
    # Three only: if the hub is unreachable, each revision fails slowly.
    for index in range(min(3, checkpoints)):
        try:
            return plan(fetcher.folder(index, on_wait=lambda text: on_event(Note(text))))
        except SuiteError as error:
            first_error = first_error or error
            fetcher.done(index)
    assert first_error is not None
    raise first_error


def _planned(prepared: Prepared, on_event: OnEvent) -> Summary:
    """The summary of a run that is planned, with its notes."""
    notes = [*prepared.suite.notes, *prepared.notes]
    on_event(Planned(prepared.plan, prepared.settings.engine, tuple(notes)))
    return Summary(prepared.plan, notes=notes, prefix_cache=prepared.settings.has_prefix_cache)


def file_problems(
    prepared: Prepared, checkpoints: Sequence[Checkpoint], hub: Hub | None, progress: Progress
) -> tuple[CheckpointFailed, ...]:
    """The checkpoints on this machine whose files show that they cannot run.

    Only headers of weights are read. Checkpoints that have to be downloaded are checked later.
    """
    if checkpoints:
        progress(f"checking the files of {counted(len(checkpoints), 'checkpoint')}")
    compatibility = prepared.compatibility()
    failed = []
    for checkpoint in checkpoints:
        source = checkpoint.source
        folder = source.path if isinstance(source, LocalSource) else None
        if isinstance(source, HubSource) and hub is not None:
            folder = hub.cached_folder(source)
        if folder is None:
            continue
        try:
            compatibility.check(folder)
        except LogitbankError as error:
            failed.append(CheckpointFailed(checkpoint.id, f"{checkpoint.id}: {error}"))
    return tuple(failed)


def _estimate(
    summary: Summary, prepared: Prepared, parallel: ParallelConfig, hub: Hub | None
) -> None:
    """Measure a sample of the plan, except for a cluster, which has other machines."""
    summary.models = len(group_by_config(prepared.suite, {*prepared.plan.to_run}, hub))
    if not prepared.plan.rows or parallel.ray is not None:
        return
    make_worker = partial(first_worker, settings=prepared.settings, count=parallel.workers)
    summary.estimate = measure(
        prepared, make_worker, workers=parallel.workers, models=summary.models
    )


def _execute(
    runner: Runner, bank: Bank, suite: Suite, log: RunLog, summary: Summary, progress: Progress
) -> None:
    """Run the plan, and seal complete deposits."""
    try:
        with log:
            runner.run()
            if not summary.interrupted:
                progress("sealing complete deposits")
                _finish(bank, suite)
                own = [d for c in suite.checkpoints for d in bank.deposits(c.id)]
                for copied in copied_weights(own):
                    runner.note(str(copied))
    except KeyboardInterrupt:
        summary.interrupted = True
        raise


def _seems_done(bank: Bank | None, suite: Suite) -> bool:
    """Whether every checkpoint has a sealed deposit, so that workers may have nothing to do.

    The plan decides later; a worker that was not started starts at its first job.
    """
    return bank is not None and all(
        any(deposit.sealed for deposit in bank.deposits(checkpoint.id))
        for checkpoint in suite.checkpoints
    )


def _create(path: Path) -> Bank:
    """A new bank, or the one that a simultaneous run has just created."""
    try:
        return Bank.create(path)
    except UsageError:
        return Bank.open(path)


def record_prompts(bank: Bank, prepared: Prepared, progress: Progress = lambda _: None) -> None:
    """Write new query sets, the prompt tables, and the texts of the tokens into the bank."""
    progress("writing prompts into the bank")
    for query_set in prepared.new_query_sets:
        bank.add_query_set(query_set)
    for name, table in prepared.tables:
        write_set(bank.path, name, table, prepared.contents[name])
    if all(file.name != prepared.tokenizer.digest for file in tokens_files(bank.path)):
        bank.add_tokens(prepared.tokenizer.digest, prepared.tokenizer.vocabulary())


def _finish(bank: Bank, suite: Suite) -> None:
    """Seal complete deposits. Score options that were added later, from full rows or states."""
    deposits = [d for checkpoint in suite.checkpoints for d in bank.deposits(checkpoint.id)]
    for deposit in deposits:
        if deposit.complete and not deposit.sealed:
            with bank.begin(deposit.spec) as writer:
                writer.seal()
    # Deposits without full rows or states are skipped; the plan has refused new options for them.
    rescore_all(bank.path, deposits)
