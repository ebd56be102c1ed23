"""Distribute a plan's work units to workers, and record what happens.

One thread per worker takes the next task from one list, waits for its files and forwards the events
of its worker. The thread that called `run` handles all events.
"""

import platform
import queue
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from logitbank.engine.backends.out_of_memory import smaller as smaller_batches
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.compatibility import Compatibility
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.plan.prepare import Prepared
from logitbank.engine.plan.sharding import WorkUnit, work_units
from logitbank.engine.suites.prefetch import Prefetcher
from logitbank.engine.suites.suites import Checkpoint, group_by_config
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointDone,
    CheckpointFailed,
    CheckpointStarted,
    CheckpointStopped,
    Event,
    Job,
    NextCheckpoint,
    Note,
    OnEvent,
    Phase,
    Summary,
    WeightsLoaded,
    add_costs,
)
from logitbank.engine.workers.outcome import Abort, Decision, History, Retry, Stop, decide
from logitbank.engine.workers.pool import Pool, WorkerHandle
from logitbank.engine.workers.stopping import Stopping
from logitbank.errors import LogitbankError
from logitbank.store.format.schema import CheckpointId, Json
from logitbank.version import __version__

LONG_WAIT_S = 30.0

_NO_WORKER = (
    "No worker starts on the Ray cluster. No machine has free resources, or logitbank cannot be"
    " imported there. Still waiting; see /tmp/ray/session_latest/logs on Ray's machines."
)


@dataclass(eq=False, slots=True)
class _Suite:
    """A planned suite, and what has happened to it so far."""

    prepared: Prepared
    compatibility: Compatibility
    settings: EngineSettings
    """Those of its next jobs; their batches may become smaller."""
    succeeded: set[CheckpointId] = field(default_factory=set)
    engine_failures: set[CheckpointId] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class _Checkpoint:
    """A planned checkpoint, and its results so far."""

    found: Checkpoint
    index: int
    """Index among the checkpoints of all suites."""
    suite: _Suite
    deposits: list[DepositPlan] = field(default_factory=list)
    tasks_left: int = 0
    committed_rows: int = 0
    spent: dict[Phase, float] = field(default_factory=dict)
    failed: bool = False
    """Whether it has failed: none of its other tasks are started."""

    @property
    def id(self) -> CheckpointId:
        return self.found.id


@dataclass(eq=False, slots=True)
class _Task:
    """A work unit of a checkpoint, and its failures since the last commit."""

    checkpoint: _Checkpoint
    unit: WorkUnit
    started: bool = False
    announced_to: WorkerHandle | None = None
    """The worker that prepares for it; another one may still take it when no other is left."""
    crashes: int = 0
    """Deaths of the worker's process."""
    losses: int = 0
    """Lost machines."""


class Runner:
    """Runs one task after another on each worker. A failed one does not stop the others."""

    def __init__(
        self,
        prepared: Sequence[Prepared],
        checkpoints: Sequence[Checkpoint],
        fetcher: Prefetcher,
        pool: Pool,
        summary: Summary,
        on_event: OnEvent,
        stopping: Stopping,
        problems: Sequence[CheckpointFailed] = (),
    ) -> None:
        """Suites run in the order of `prepared`. `checkpoints` are those of all suites, as numbered
        by the fetcher. `problems` are of those whose files cannot be used; they are not tried."""
        self._problems = problems
        self._fetcher, self._workers = fetcher, pool.workers
        self._summary, self._on_event, self._stopping = summary, on_event, stopping
        self._checkpoints: dict[CheckpointId, _Checkpoint] = {}
        indices = {checkpoint.id: index for index, checkpoint in enumerate(checkpoints)}
        for part in prepared:
            suite = _Suite(part, part.compatibility(), part.settings)
            for found in part.to_run:
                self._checkpoints[found.id] = _Checkpoint(found, indices[found.id], suite)
            for deposit in part.plan.deposits:
                self._checkpoints[deposit.checkpoint].deposits.append(deposit)
        groups = group_by_config([c.found for c in self._checkpoints.values()], fetcher.hub)
        in_order = [self._checkpoints[id] for group in groups for id in group]
        units = work_units(len(in_order), len(self._workers))
        tasks = (_Task(in_order[unit.index], unit) for unit in units)
        self._todo = [task for task in tasks if task.unit.select(task.checkpoint.deposits)]
        for task in self._todo:
            task.checkpoint.tasks_left += 1
        # An event, the decision to abort, an error to raise, or None at the end of a thread.
        self._queue: queue.SimpleQueue[Event | Abort | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._taken: set[_Task] = set()
        self._running: set[WorkerHandle] = set()
        self._last_taken = time.monotonic()
        self._noted_wait = False
        self._weights: dict[str, CheckpointId] = {}

    def run(self) -> None:
        """Run all tasks. After a KeyboardInterrupt the caller has to end the workers."""
        self._summary.workers = len(self._workers)
        for failure in self._problems:
            self._handle(failure)
        threads = [
            threading.Thread(target=self._run_worker, args=(worker,), name="worker", daemon=True)
            for worker in self._workers
        ]
        self._fetcher.plan([task.checkpoint.index for task in self._todo])
        for thread in threads:
            thread.start()
        try:
            with self._stopping.watched():
                self._handle_events(len(threads))
        except BaseException:
            self._stopping.request()  # the caller kills the workers: their tasks are not retried
            raise
        self._summary.failed.sort(key=lambda failure: self._checkpoints[failure.checkpoint].index)
        self._summary.interrupted |= self._stopping.requested and not self._summary.aborted

    def _handle_events(self, threads: int) -> None:
        """Handle events until all threads have ended, or the run stops and no job is running."""
        interrupted = False
        while threads and not self._stopping.over:
            if self._stopping.requested and not interrupted:
                interrupted = True
                for worker in self._workers:
                    worker.interrupt()
            idle = self._stopping.requested and not self._running
            try:
                event = self._queue.get(timeout=0.0 if idle else 0.25)
            except queue.Empty:
                if idle:
                    break  # the remaining threads only wait for files
                continue
            match event:
                case None:
                    threads -= 1
                case Abort():
                    self._summary.aborted = True
                    self._stopping.request()
                case BaseException():
                    raise event
                case _:
                    self._handle(event)

    def _run_worker(self, worker: WorkerHandle) -> None:
        """Run tasks on one worker until none is left. One thread per worker runs this."""
        try:
            idle_since = time.monotonic()
            while (task := self._next_task(worker)) is not None:
                job, retry = self._job(task, worker), False
                if job is not None:
                    waited_s = time.monotonic() - idle_since
                    self._running.add(worker)
                    retry = self._run_task(worker, task, job, waited_s)
                    self._running.remove(worker)
                    idle_since = time.monotonic()
                self._return(task, worker, retry=retry)
        except BaseException as error:  # raised where `run` was called
            self._queue.put(error)
        finally:
            self._queue.put(None)

    def _next_task(self, worker: WorkerHandle) -> _Task | None:
        """The next task, or None if none is left and none can come back from another worker."""
        while True:
            ready = worker.ready()
            with self._lock:
                if self._stopping.requested or not (self._todo or self._taken):
                    return None
                if self._todo and ready:
                    task = self._first(worker, None) or self._todo[0]
                    self._todo.remove(task)
                    self._taken.add(task)
                    return task
                if self._taken:
                    self._last_taken = time.monotonic()
                elif time.monotonic() > self._last_taken + LONG_WAIT_S and not self._noted_wait:
                    self._noted_wait = True
                    self._note(_NO_WORKER)
            time.sleep(0.1)

    def _first(self, *announced_to: WorkerHandle | None) -> _Task | None:
        """The first task that is announced to one of these, the first of them first."""
        for worker in announced_to:
            for task in self._todo:
                if task.announced_to is worker:
                    return task
        return None

    def _following(self, task: _Task, worker: WorkerHandle) -> NextCheckpoint | None:
        """The checkpoint that this worker will probably run next, if its files are present."""
        with self._lock:
            following = self._first(worker, None)
            if following is None or following.checkpoint is task.checkpoint:
                return None
            checkpoint = following.checkpoint
            if (folder := self._fetcher.fetched(checkpoint.index)) is None:
                return None
            try:
                checkpoint.suite.compatibility.check(folder)
            except LogitbankError:
                return None  # raised when it is its turn
            following.announced_to = worker
        return NextCheckpoint(checkpoint.id, folder)

    def _return(self, task: _Task, worker: WorkerHandle, *, retry: bool) -> None:
        with self._lock:
            self._taken.remove(task)
            task.announced_to = None
            if task.checkpoint.failed:
                # This task may have fetched the checkpoint again after another one had failed.
                self._fetcher.done(task.checkpoint.index)
            elif retry:
                for announced in self._todo:
                    if announced.announced_to is worker:
                        announced.announced_to = None
                self._todo.insert(0, task)

    def _run_task(self, worker: WorkerHandle, task: _Task, job: Job, waited_s: float) -> bool:
        """Forward the events of a job. Return whether to retry it.

        Committed blocks are not run again.
        """
        retry = False
        for event in worker.run(job):
            message: Event | Abort = event
            match event:
                case BlockCommitted():
                    task.crashes = task.losses = 0
                case CheckpointDone():
                    message = replace(event, spent={**event.spent, "wait": waited_s})
                    task.checkpoint.suite.succeeded.add(job.checkpoint)
                case CheckpointFailed():
                    match self._decide(event, task, job):
                        case Stop():
                            message = CheckpointStopped(job.checkpoint)
                        case Retry(smaller=has_smaller):
                            retry = True
                            message = self._retry_note(event, task, job, smaller=has_smaller)
                        case Abort() as abort if self._ends_all(event, task.checkpoint.suite):
                            self._queue.put(event)
                            message = abort
            self._queue.put(message)
            if isinstance(message, Abort):
                self._stopping.request()  # before this worker takes another task
        return retry

    def _decide(self, failure: CheckpointFailed, task: _Task, job: Job) -> Decision:
        task.crashes += failure.cause == "crash"
        task.losses += failure.cause == "lost"
        suite = task.checkpoint.suite
        engine_failures = suite.engine_failures
        if failure.cause in ("crash", "engine"):
            engine_failures = engine_failures | {job.checkpoint}
        history = History(
            crashes=task.crashes,
            losses=task.losses,
            can_shrink=smaller_batches(job.settings) is not None,
            stopping=self._stopping.requested,
            done=len(suite.succeeded),
            engine_failures=len(engine_failures),
        )
        decision = decide(failure, history)
        if failure.cause in ("crash", "engine") and not isinstance(decision, Retry):
            suite.engine_failures.add(job.checkpoint)
        return decision

    def _ends_all(self, failure: CheckpointFailed, suite: _Suite) -> bool:
        """Whether a failure that ends its suite ends the run too; else the suite's tasks go."""
        with self._lock:
            others = [
                task for task in (*self._todo, *self._taken) if task.checkpoint.suite != suite
            ]
            if failure.cause == "fatal" or not others:
                return True
            self._todo = [task for task in self._todo if task.checkpoint.suite is not suite]
        return False

    def _retry_note(
        self, failure: CheckpointFailed, task: _Task, job: Job, *, smaller: bool
    ) -> Note:
        """A note of the retry. All jobs of the suite have its smaller batches from now on."""
        sizes = ""
        if smaller and (settings := smaller_batches(job.settings)) is not None:
            task.checkpoint.suite.settings = settings
            sizes = f" with batches of {settings.max_batch_tokens:,} tokens"
        return Note(f"{failure.message}; retrying the uncommitted blocks{sizes}")

    def _job(self, task: _Task, worker: WorkerHandle) -> Job | None:
        """The job of a task, or None if the files of its checkpoint cannot be used."""
        checkpoint, suite = task.checkpoint, task.checkpoint.suite
        prepared = suite.prepared
        try:
            folder = self._fetcher.folder(checkpoint.index, on_wait=self._note, after_s=LONG_WAIT_S)
            with self._lock:
                config = suite.compatibility.check(folder)
        except LogitbankError as error:
            self._queue.put(CheckpointFailed(checkpoint.id, f"{checkpoint.id}: {error}"))
            return None
        deposits = task.unit.select(checkpoint.deposits)
        if not task.started:
            task.started = True
            self._queue.put(CheckpointStarted(checkpoint.id, sum(d.rows for d in deposits)))
        vocab = prepared.config.vocab
        return Job(
            checkpoint.id,
            folder,
            deposits,
            vocab,
            min(prepared.tokenizer.entries, vocab),
            _provenance(checkpoint.found, prepared),
            suite.settings,
            config,
            self._following(task, worker),
        )

    def _note(self, text: str) -> None:
        """Queue a note. Any thread may call this."""
        self._queue.put(Note(text))

    def note(self, text: str) -> None:
        """Report a note after the run."""
        self._handle(Note(text))

    def _handle(self, event: Event) -> None:
        summary = self._summary
        match event:
            case BlockCommitted():
                self._checkpoints[event.checkpoint].committed_rows += event.rows
                summary.rows += event.rows
                summary.bytes += event.bytes
            case CheckpointDone():
                checkpoint = self._checkpoints[event.checkpoint]
                add_costs(event, summary=summary, spent=checkpoint.spent)
                checkpoint.tasks_left -= 1
                if checkpoint.tasks_left or checkpoint.failed:
                    return
                summary.done.append(checkpoint.id)
                planned = sum(deposit.rows for deposit in checkpoint.deposits)
                summary.others += max(0, planned - checkpoint.committed_rows)
                self._fetcher.done(checkpoint.index)
                event = replace(event, spent=checkpoint.spent)
            case CheckpointFailed():
                checkpoint = self._checkpoints[event.checkpoint]
                if checkpoint.failed or summary.aborted:
                    return
                summary.failed.append(event)
                self._fetcher.done(checkpoint.index)
                with self._lock:
                    checkpoint.failed = True
                    self._todo = [task for task in self._todo if task.checkpoint is not checkpoint]
            case CheckpointStopped():
                self._stopping.request()
            case Note():
                summary.notes.append(event.text)
            case WeightsLoaded():
                first = self._weights.setdefault(event.weights, event.checkpoint)
                if first != event.checkpoint:
                    self._handle(Note(f"{event.checkpoint} has the same weights as {first}"))
        self._on_event(event)


def _provenance(checkpoint: Checkpoint, prepared: Prepared) -> dict[str, Json]:
    """Provenance of a checkpoint's deposits, without what its engine adds."""
    settings, adapters = prepared.settings, prepared.adapter_source
    borrowed: dict[str, Json] = {}
    if settings.adapter_languages and adapters is not None:
        borrowed = {"adapter_from": adapters.describe()}
    return borrowed | {
        "source": checkpoint.source.describe(),
        "tokenizer": prepared.tokenizer.digest,
        "special_tokens": {**prepared.special_tokens},
        "logitbank_version": __version__,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "trust_remote_code": settings.trust_remote_code,
    }
