"""Feed workers with a plan's pieces and keep the account of what happened.

One thread per worker takes the next piece from one list, waits for its files and passes on what its
worker tells. All events are handled in the thread that called `run`.
"""

import math
import platform
import queue
import socket
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from logitbank.engine.backends.hf.memory import smaller
from logitbank.engine.plan.compatibility import Compatibility
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.plan.prepare import Prepared
from logitbank.engine.plan.sharding import WorkUnit, work_units
from logitbank.engine.suites.prefetch import Prefetcher
from logitbank.engine.suites.suites import group_by_config
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointDone,
    CheckpointFailed,
    CheckpointStarted,
    CheckpointStopped,
    Event,
    Note,
    OnEvent,
    Phase,
    Summary,
    WeightsLoaded,
    add_costs,
)
from logitbank.engine.workers.job import Job, WorkerHandle
from logitbank.engine.workers.outcome import Abort, Decision, History, Retry, Stop, decide
from logitbank.engine.workers.pool import Pool
from logitbank.engine.workers.stopping import Stopping
from logitbank.errors import LogitbankError
from logitbank.store.format.schema import CheckpointId, Json
from logitbank.version import __version__

_LONG_S = 30.0

_NO_PLACE = (
    "no worker starts on the cluster: no machine has room, or logitbank cannot be imported there"
    " (the logs of Ray, in /tmp/ray/session_latest/logs on that machine, say); waiting"
)


class _Ended:
    """A worker's thread is at its end."""


class _Aborted:
    """The other checkpoints would fail too."""


_Told = Event | _Ended | _Aborted | BaseException


class Runner:
    """One piece after another for each worker; one that fails does not stop the others."""

    def __init__(
        self,
        prepared: Prepared,
        fetcher: Prefetcher,
        pool: Pool,
        summary: Summary,
        on_event: OnEvent,
        stopping: Stopping,
    ) -> None:
        self._prepared, self._settings = prepared, prepared.settings
        self._fetcher, self._workers = fetcher, pool.workers
        self._summary, self._on_event, self._stopping = summary, on_event, stopping
        self._events: queue.SimpleQueue[_Told] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._weights: dict[str, CheckpointId] = {}
        self._fit = Compatibility(
            prepared.config,
            prepared.tokenizer,
            prepared.first,
            longest=prepared.settings.max_length,
        )
        self._work: dict[CheckpointId, list[DepositPlan]] = {}
        for deposit in prepared.plan.deposits:
            self._work.setdefault(deposit.checkpoint, []).append(deposit)
        self._indices = {c.id: i for i, c in enumerate(prepared.suite.checkpoints)}
        groups = group_by_config(prepared.suite, self._work, fetcher.hub)
        to_run = [checkpoint for group in groups for checkpoint in group]
        self._todo = [
            (to_run[unit.index], unit)
            for unit in work_units(len(to_run), len(self._workers))
            if unit.select(self._work[to_run[unit.index]])
        ]
        self._left = Counter(checkpoint for checkpoint, _ in self._todo)
        self._committed: Counter[CheckpointId] = Counter()
        self._spent: dict[CheckpointId, dict[Phase, float]] = {}
        self._busy: set[WorkerHandle] = set()
        self._given = 0
        self._given_up: set[CheckpointId] = set()  # failed: no part of them is begun any more
        self._losses: Counter[tuple[CheckpointId, WorkUnit]] = Counter()
        self._succeeded: set[CheckpointId] = set()
        self._engine_failed: set[CheckpointId] = set()
        self._patient_until = time.monotonic() + _LONG_S
        self._interrupted = False

    def run(self) -> None:
        """Run all pieces. KeyboardInterrupt leaves workers running: who started them ends them."""
        self._summary.workers = len(self._workers)
        threads = [
            threading.Thread(target=self._feed, args=(worker,), name="feed", daemon=True)
            for worker in self._workers
        ]
        self._fetcher.plan([self._indices[checkpoint] for checkpoint, _ in self._todo])
        for thread in threads:
            thread.start()
        try:
            with self._stopping.watched():
                self._follow(len(threads))
        except BaseException:
            self._stopping.ask()  # whose worker is killed now does not try again
            raise
        self._summary.interrupted |= self._stopping.requested and not self._summary.aborted

    def _follow(self, running: int) -> None:
        """Handle events until no thread is left, or what is left only waits."""
        while running and not self._stopping.over:
            if self._stopping.requested:
                self._interrupt()
            idle = self._stopping.requested and not self._busy
            try:
                event = self._events.get(timeout=0.0 if idle else 0.25)
            except queue.Empty:
                if idle:
                    break  # all was told, and what is left only waits for files
                continue
            match event:
                case _Ended():
                    running -= 1
                case _Aborted():
                    self._summary.aborted = True
                    self._stopping.ask()
                case BaseException():
                    raise event
                case _:
                    self._handle(event)

    def _interrupt(self) -> None:
        if not self._interrupted:
            self._interrupted = True
            for worker in self._workers:
                worker.interrupt()

    def _feed(self, worker: WorkerHandle) -> None:
        try:
            idle = time.monotonic()
            while (taken := self._take(worker)) is not None:
                job, again = self._job(*taken), False
                if job is not None:
                    waited = time.monotonic() - idle
                    self._busy.add(worker)
                    again = self._run(worker, taken, job, waited)
                    self._busy.remove(worker)
                    idle = time.monotonic()
                self._give_back(taken, again=again)
        except BaseException as error:  # raised where `run` was called
            self._events.put(error)
        finally:
            self._events.put(_Ended())

    def _take(self, worker: WorkerHandle) -> tuple[CheckpointId, WorkUnit] | None:
        """What to do next; None where nothing is left, and no worker has what may be lost."""
        while True:
            ready = worker.ready()
            with self._lock:
                if self._stopping.requested or not (self._todo or self._given):
                    return None
                if self._todo and ready:
                    self._given += 1
                    return self._todo.pop(0)
                self._say_who_waits()
            time.sleep(0.1)

    def _say_who_waits(self) -> None:
        if self._given:
            self._patient_until = time.monotonic() + _LONG_S
        elif time.monotonic() > self._patient_until:
            self._patient_until = math.inf
            self._note(_NO_PLACE)

    def _give_back(self, taken: tuple[CheckpointId, WorkUnit], *, again: bool) -> None:
        with self._lock:
            self._given -= 1
            if taken[0] in self._given_up:
                # This part may have fetched the checkpoint again after another part had failed.
                self._fetcher.done(self._indices[taken[0]])
            elif again:
                self._todo.insert(0, taken)

    def _run(
        self, worker: WorkerHandle, taken: tuple[CheckpointId, WorkUnit], job: Job, waited: float
    ) -> bool:
        """Pass on the events of a job until it has an outcome; whether another worker retries it.

        What was committed is not run again.
        """
        crashes = 0
        while True:
            retry: Retry | None = None
            for event in worker.run(job):
                match event:
                    case BlockCommitted():
                        crashes = self._losses[taken] = 0
                    case CheckpointDone():
                        event = replace(event, spent={**event.spent, "wait": waited})
                        self._succeeded.add(job.checkpoint)
                    case CheckpointFailed(cause=cause):
                        crashes += cause == "crash"
                        self._losses[taken] += cause == "lost"
                        decision = self._decide(event, job, crashes, self._losses[taken])
                        match decision:
                            case Stop():
                                event = CheckpointStopped(job.checkpoint)
                            case Retry():
                                retry = decision
                                event = self._note_of(event, decision, job)
                            case Abort():
                                self._events.put(event)
                                self._events.put(_Aborted())
                                continue
                self._events.put(event)
            if retry is None or retry.where == "any worker":
                return retry is not None
            if retry.smaller:
                job = replace(job, settings=self._settings)

    def _decide(self, failure: CheckpointFailed, job: Job, crashes: int, losses: int) -> Decision:
        if failure.cause in ("crash", "engine"):
            self._engine_failed.add(job.checkpoint)
        history = History(
            crashes, losses, smaller(job.settings) is not None, self._stopping.requested,
            len(self._succeeded), len(self._engine_failed),
        )  # fmt: skip
        return decide(failure, history)

    def _note_of(self, failure: CheckpointFailed, retry: Retry, job: Job) -> Note:
        """What is printed of a retry; its batches are those of all workers from now on."""
        sizes = ""
        if retry.smaller and (less := smaller(job.settings)) is not None:
            self._settings = less
            sizes = f" with batches of {less.max_batch_tokens:,} tokens"
        return Note(f"{failure.message}; retrying what is not committed{sizes}")

    def _job(self, checkpoint: CheckpointId, unit: WorkUnit) -> Job | None:
        """What a worker is asked to do; None where its files are not what they should be."""
        index = self._indices[checkpoint]
        try:
            folder = self._fetcher.folder(index, on_wait=self._note, after_s=_LONG_S)
            with self._lock:
                config = self._fit.check(folder)
        except LogitbankError as error:
            self._events.put(CheckpointFailed(checkpoint, f"{checkpoint}: {error}"))
            return None
        deposits = unit.select(self._work[checkpoint])
        self._events.put(CheckpointStarted(checkpoint, sum(d.rows for d in deposits)))
        prepared = self._prepared
        return Job(
            checkpoint,
            folder,
            deposits,
            prepared.config.vocab,
            min(prepared.tokenizer.entries, prepared.config.vocab),
            _provenance(index, prepared),
            *(self._settings, config),
        )

    def _note(self, text: str) -> None:
        """Tell a finding. May be called from any thread."""
        self._events.put(Note(text))

    def _handle(self, event: Event) -> None:
        match event:
            case BlockCommitted(checkpoint=checkpoint, rows=rows, bytes=size):
                self._committed[checkpoint] += rows
                self._summary.rows += rows
                self._summary.bytes += size
            case CheckpointDone(checkpoint=checkpoint):
                spent = self._spent.setdefault(checkpoint, {})
                add_costs(event, summary=self._summary, of_checkpoint=spent)
                self._left[checkpoint] -= 1
                if self._left[checkpoint] or checkpoint in self._given_up:
                    return  # other parts of it are to come
                self._summary.done.append(checkpoint)
                planned = sum(deposit.rows for deposit in self._work[checkpoint])
                self._summary.others += max(0, planned - self._committed[checkpoint])
                self._fetcher.done(self._indices[checkpoint])
                event = replace(event, spent=spent)
            case CheckpointFailed(checkpoint=checkpoint):
                if checkpoint in self._given_up or self._summary.aborted:
                    return  # another part of it has failed, or the run is over
                self._summary.failed.append(event)
                self._fetcher.done(self._indices[checkpoint])
                with self._lock:
                    self._given_up.add(checkpoint)
                    self._todo = [each for each in self._todo if each[0] != checkpoint]
            case CheckpointStopped():
                self._stopping.ask()
            case Note(text=text):
                self._summary.notes.append(text)
            case WeightsLoaded(checkpoint=checkpoint, weights=weights):
                if (first := self._weights.setdefault(weights, checkpoint)) != checkpoint:
                    self._handle(Note(f"{checkpoint} has the same weights as {first}"))
        self._on_event(event)


def _provenance(index: int, prepared: Prepared) -> dict[str, Json]:
    """How a deposit of this checkpoint of the suite was made, as far as no engine knows."""
    settings, adapters = prepared.settings, prepared.adapter_source
    borrowed: dict[str, Json] = {}
    if settings.adapter_languages and adapters is not None:
        borrowed = {"adapter_from": adapters.describe()}
    return borrowed | {
        "source": prepared.suite.checkpoints[index].source.describe(),
        "tokenizer": prepared.tokenizer.digest,
        "special_tokens": {**prepared.special_tokens},
        "logitbank_version": __version__,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "trust_remote_code": settings.trust_remote_code,
    }
