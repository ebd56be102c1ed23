"""Run a request: make its plan, execute it, and report what happened."""

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path

from logitbank.engine.backends.protocol import EngineStart
from logitbank.engine.plan.checks import check_space
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.plan import joined_plan
from logitbank.engine.plan.prepare import (
    BorrowedAdapters,
    Machines,
    PlanInputs,
    Prepared,
    Progress,
    plan_suite,
)
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.request import ExtractRequest
from logitbank.engine.run_log import RunLog, run_description
from logitbank.engine.sample import measure
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.prefetch import Prefetcher, download_bytes, parse_bytes
from logitbank.engine.suites.suites import Checkpoint, LocalSource, Suite, group_by_config
from logitbank.engine.weights.weights import weight_file_bytes
from logitbank.engine.workers.events import (
    CheckpointFailed,
    Note,
    OnEvent,
    Planned,
    Preparing,
    SuiteFailed,
    Summary,
    joined_estimate,
)
from logitbank.engine.workers.pool import LocalPool, Pool
from logitbank.engine.workers.runner import Runner
from logitbank.engine.workers.stopping import Stopping
from logitbank.errors import LogitbankError, SuiteError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.change.rescore import rescore_all
from logitbank.store.deposits.catalog import deposit_folders
from logitbank.store.files.objects import is_occupied
from logitbank.store.format.commits import SEAL
from logitbank.store.read.copied_weights import copied_weights
from logitbank.store.tables.prompt_tables import write_set
from logitbank.store.tables.token_texts import tokens_files
from logitbank.wording import counted


def run(
    path: str | Path,
    request: ExtractRequest,
    suites: Sequence[Suite],
    prompts: Sequence[PromptSet],
    *,
    start: EngineStart,
    parallel: ParallelConfig,
    dry_run: bool = False,
    hub: Hub | None = None,
    failed: Sequence[SuiteFailed] = (),
    on_event: OnEvent = lambda _: None,
) -> Summary:
    """Execute a request for suites and prompts that are read. See `extract`.

    `start` and `parallel` complete the request by this machine. `failed` are suites that were not
    found.
    """
    path, began = Path(path), time.monotonic()
    bank = Bank.open(path) if is_occupied(path) else None
    checkpoints = [checkpoint for suite in suites for checkpoint in suite.checkpoints]
    if hub is None and any(isinstance(c.source, HubSource) for c in checkpoints):
        hub = Hub()
    adapters = _borrowed_adapters(request.adapter_from, hub)
    budget = None if request.disk_budget is None else parse_bytes(request.disk_budget)
    stopping = Stopping(deadline=parallel.job_end)
    report_progress = _progress(on_event)
    with stopping.on_sigterm(), ExitStack() as stack:
        pool = None if dry_run else stack.enter_context(_pool(path, start, parallel))
        ahead = 1 + (0 if pool is None else len(pool.workers))
        fetcher = Prefetcher(checkpoints, hub, ahead=ahead, disk_budget=budget)
        stack.enter_context(fetcher)
        if pool is not None and not _seems_done(bank, checkpoints):
            pool.start()  # its imports take as long as planning
        shard = parallel.shard
        on_gpu = None if pool is None else pool.on_gpu
        inputs = PlanInputs(
            request=request,
            prompts=prompts,
            bank=bank,
            start=start,
            adapters=adapters,
            machines=Machines.detect(parallel, gpu=on_gpu, environment=os.environ),
            shard=None if shard is None else (shard, [c.id for c in checkpoints]),
            progress=report_progress,
        )
        all_prepared, not_planned = list[Prepared](), list[SuiteFailed]()
        for suite in suites:
            try:
                prepared = _plan_by_first(
                    partial(plan_suite, inputs, suite, planned=all_prepared),
                    fetcher, checkpoints.index(suite.checkpoints[0]), suite, on_event,
                )  # fmt: skip
            except LogitbankError as error:
                if len(suites) + len(failed) == 1:
                    raise
                not_planned.append(SuiteFailed(suite.name, str(error)))
                on_event(not_planned[-1])
            else:
                all_prepared.append(prepared)
        # The largest models first: a long checkpoint at the end would run alone.
        all_prepared.sort(key=lambda each: -weight_file_bytes(each.first))
        summary = _planned(all_prepared, [*failed, *not_planned], on_event)
        missing = {*summary.plan.to_run}
        to_run = [c for c in checkpoints if c.id in missing]
        downloads = download_bytes(path, to_run, hub, disk_budget=budget)
        check_space(path, summary.plan, downloads=downloads)
        problems = file_problems(all_prepared, hub, report_progress)
        if dry_run:
            for failure in problems:
                summary.failed.append(failure)
                on_event(failure)
            _estimate(summary, all_prepared, parallel, hub)
        else:
            assert pool is not None
            bank = bank or _create(path)
            record_prompts(bank, *all_prepared, progress=report_progress)
            log = RunLog(path, summary, run_description(all_prepared, parallel, summary))
            with suppress(KeyboardInterrupt):
                follow = log.follow(on_event)
                runner = Runner(
                    all_prepared, checkpoints, fetcher, pool, summary, follow, stopping, problems
                )
                _execute(runner, bank, checkpoints, log, summary, report_progress)
                if not summary.interrupted:
                    pool.stop()
    summary.seconds = time.monotonic() - began
    return summary


def _progress(on_event: OnEvent) -> Progress:
    return lambda step: on_event(Preparing(step))


def _pool(path: Path, start: EngineStart, parallel: ParallelConfig) -> Pool:
    """The workers that a run requests."""
    if parallel.ray is None:
        shared_log = parallel.shard is not None
        return LocalPool(path, start, parallel.workers, shared_log=shared_log)
    from logitbank.engine.workers.ray_worker import RayPool

    return RayPool(parallel.ray, path, start, parallel.workers)


def _borrowed_adapters(spec: str | Path | None, hub: Hub | None) -> BorrowedAdapters | None:
    if spec is None:
        return None
    if (folder := Path(spec).expanduser()).is_dir():
        return BorrowedAdapters(LocalSource(folder), folder)
    spec = str(spec)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec, re.ASCII):
        raise SuiteError(f"--adapter-from {spec!r} is invalid: use a folder, or owner/repo.")
    source = HubSource(spec, "main")
    return BorrowedAdapters(source, (hub or Hub()).fetch(source))


def _plan_by_first(
    plan: Callable[..., Prepared],
    fetcher: Prefetcher,
    start: int,
    suite: Suite,
    on_event: OnEvent,
) -> Prepared:
    """Plan with the first usable one of a suite's first three checkpoints, from number `start`."""
    first_error: SuiteError | None = None
    # Three only: if the hub is unreachable, each revision fails slowly.
    for index in range(start, start + min(3, len(suite.checkpoints))):
        try:
            return plan(first=fetcher.folder(index, on_wait=lambda text: on_event(Note(text))))
        except SuiteError as error:
            first_error = first_error or error
            fetcher.done(index)
    assert first_error is not None
    raise first_error


def _planned(
    prepared: Sequence[Prepared], failed: Sequence[SuiteFailed], on_event: OnEvent
) -> Summary:
    """The summary of a run that is planned, with its notes.

    Raises
    ------
    SuiteError
        No suite can be run.
    """
    if not prepared:
        told = "; ".join(f"{each.suite}: {each.message}" for each in failed)
        raise SuiteError(f"None of the {len(failed)} suites can be run: {told}")
    named = "{suite}: {note}" if len(prepared) > 1 else "{note}"
    notes = [
        named.format(suite=each.suite.name, note=note)
        for each in prepared
        for note in (*each.suite.notes, *each.notes)
    ]
    plan = joined_plan([each.plan for each in prepared])
    engines = dict.fromkeys(each.settings.engine for each in prepared)
    on_event(Planned(plan, ", ".join(engines), tuple(notes)))
    return Summary(plan, notes=notes, failed_suites=[*failed])


def file_problems(
    prepared: Sequence[Prepared], hub: Hub | None, progress: Progress
) -> tuple[CheckpointFailed, ...]:
    """The checkpoints on this machine whose files show that they cannot run.

    Only headers of weights are read. Checkpoints that have to be downloaded are checked later.
    """
    number = sum(len(each.plan.to_run) for each in prepared)
    if number:
        progress(f"checking the files of {counted(number, 'checkpoint')}")
    failed = []
    for part in prepared:
        compatibility = part.compatibility()
        for checkpoint in part.to_run:
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
    summary: Summary, prepared: Sequence[Prepared], parallel: ParallelConfig, hub: Hub | None
) -> None:
    """Measure a sample of each suite, except for a cluster, which has other machines."""
    estimates = []
    summary.models = 0
    for part in prepared:
        models = len(group_by_config(part.to_run, hub))
        summary.models += models
        if part.plan.rows and parallel.ray is None:
            estimates.append(measure(part, workers=parallel.workers, models=models))
    if estimates:
        summary.estimate = joined_estimate(estimates)


def _execute(
    runner: Runner,
    bank: Bank,
    checkpoints: Sequence[Checkpoint],
    log: RunLog,
    summary: Summary,
    progress: Progress,
) -> None:
    """Run the plan, and seal complete deposits."""
    try:
        with log:
            runner.run()
            if not summary.interrupted:
                progress("sealing complete deposits")
                deposits = _finish(bank, checkpoints)
                for copied in copied_weights(deposits):
                    runner.note(str(copied))
    except KeyboardInterrupt:
        summary.interrupted = True
        raise


def _seems_done(bank: Bank | None, checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether every checkpoint has a sealed deposit, so that workers may have nothing to do.

    The plan decides later; a worker that was not started starts at its first job.
    """
    return bank is not None and all(
        any(
            (bank.path / folder / "commits" / f"{SEAL}.json").exists()
            for folder in deposit_folders(bank.path, checkpoint.id)
        )
        for checkpoint in checkpoints
    )


def _create(path: Path) -> Bank:
    """A new bank, or the one that a simultaneous run has just created."""
    try:
        return Bank.create(path)
    except UsageError:
        return Bank.open(path)


def record_prompts(bank: Bank, *prepared: Prepared, progress: Progress = lambda _: None) -> None:
    """Write new query sets, the prompt tables, and the texts of the tokens into the bank.

    All query sets come before all tables. A suite's table may refer to a query set of another
    suite's plan, whatever the order of the suites.
    """
    progress("writing prompts into the bank")
    for query_set in chain.from_iterable(each.new_query_sets for each in prepared):
        bank.add_query_set(query_set)
    for each in prepared:
        for name, table in each.tables:
            write_set(bank.path, name, table, each.sets[name].content())
        if all(file.name != each.tokenizer.digest for file in tokens_files(bank.path)):
            bank.add_tokens(each.tokenizer.digest, each.tokenizer.vocabulary())


def _finish(bank: Bank, checkpoints: Sequence[Checkpoint]) -> list[Deposit]:
    """Seal complete deposits, and score options that were added later, from full rows or states.

    Returns the deposits of the checkpoints.
    """
    deposits = [d for checkpoint in checkpoints for d in bank.deposits(checkpoint.id)]
    for deposit in deposits:
        if deposit.complete and not deposit.sealed:
            with bank.begin(deposit.spec) as writer:
                writer.seal()
    # Deposits without full rows or states are skipped; the plan has refused new options for them.
    rescore_all(bank.path, deposits)
    return deposits
