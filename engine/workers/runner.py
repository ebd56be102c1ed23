"""Feed workers with a plan's pieces and keep the account of what happened.

One thread per worker takes the next piece from one list, waits for its files and passes on what its
worker tells. All events are handled in the thread that called `run`.
"""

import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from logitbank.engine.backends.hf.memory import smaller
from logitbank.engine.plan.extraction import Extraction, Prepared
from logitbank.engine.plan.fit import Fit
from logitbank.engine.plan.pieces import Piece, pieces
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.suites.configs import group_by_config
from logitbank.engine.suites.prefetch import Prefetcher
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
    is_hopeless,
)
from logitbank.engine.workers.job import Job, WorkerHandle
from logitbank.engine.workers.made_of import made_of
from logitbank.engine.workers.stopping import Stopping
from logitbank.errors import LogitbankError
from logitbank.store.format.schema import CheckpointId

_TRIES = 2
"""Tries of a piece in which nothing is committed: its worker's death may be chance."""
_LOSSES = 10
"""Machines that may be lost, one after the other, before a piece commits anything."""
_LONG_S = 30.0

_NO_PLACE = (
    "no worker starts on the cluster: no machine has room, or logitbank cannot be imported there"
    " (the logs of Ray, in /tmp/ray/session_latest/logs on that machine, say); waiting"
)


class _Ended:
    """A worker's thread is at its end."""


class Runner:
    """One piece after another for each worker; one that fails does not stop the others."""

    def __init__(
        self,
        extraction: Extraction,
        prepared: Prepared,
        fetcher: Prefetcher,
        workers: Sequence[WorkerHandle],
        summary: Summary,
        on_event: OnEvent,
        stopping: Stopping,
    ) -> None:
        self._extraction, self._prepared, self._settings = extraction, prepared, prepared.settings
        self._fetcher, self._workers = fetcher, workers
        self._summary, self._on_event, self._stopping = summary, on_event, stopping
        self._events: queue.SimpleQueue[Event | _Ended | BaseException] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._weights: dict[str, CheckpointId] = {}
        self._fit = Fit.of_plan(prepared)
        self._work: dict[CheckpointId, list[DepositPlan]] = {}
        for deposit in prepared.plan.deposits:
            self._work.setdefault(deposit.checkpoint, []).append(deposit)
        self._indices = {c.id: i for i, c in enumerate(extraction.suite.checkpoints)}
        groups = group_by_config(extraction.suite, self._work, fetcher.hub)
        to_run = [checkpoint for group in groups for checkpoint in group]
        self._todo = [
            (to_run[piece.index], piece)
            for piece in pieces(len(to_run), len(workers))
            if piece.share(self._work[to_run[piece.index]])
        ]
        self._left = Counter(checkpoint for checkpoint, _ in self._todo)
        self._committed: Counter[CheckpointId] = Counter()
        self._spent: dict[CheckpointId, dict[Phase, float]] = {}
        self._busy: set[WorkerHandle] = set()
        self._given = 0
        self._given_up: set[CheckpointId] = set()  # failed: no part of them is begun any more
        self._losses: Counter[tuple[CheckpointId, Piece]] = Counter()
        self._patient_until = time.monotonic() + _LONG_S
        self._interrupted = self._hopeless = False

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
        self._summary.interrupted |= self._stopping.requested and not self._hopeless

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
                job, lost = self._job(*taken), False
                if job is not None:
                    waited = time.monotonic() - idle
                    self._busy.add(worker)
                    for event in self._tried_again(worker, job):
                        if isinstance(event, CheckpointDone):
                            event = replace(event, spent={**event.spent, "wait": waited})
                        event, lost = self._excused(taken, event)
                        self._events.put(event)
                    self._busy.remove(worker)
                    idle = time.monotonic()
                self._give_back(taken, again=lost)
        except BaseException as error:  # raised where `run` was called
            self._events.put(error)
        finally:
            self._events.put(_Ended())

    def _take(self, worker: WorkerHandle) -> tuple[CheckpointId, Piece] | None:
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

    def _give_back(self, taken: tuple[CheckpointId, Piece], *, again: bool) -> None:
        with self._lock:
            self._given -= 1
            if again and taken[0] not in self._given_up:
                self._todo.insert(0, taken)

    def _excused(self, taken: tuple[CheckpointId, Piece], event: Event) -> tuple[Event, bool]:
        """What to tell of an event, and whether its piece is another worker's to do."""
        if isinstance(event, BlockCommitted):
            self._losses[taken] = 0
        if not isinstance(event, CheckpointFailed):
            return event, False
        if self._stopping.requested and (event.lost or event.crash):
            # A signal that ends all processes of a job ends an engine that is just starting, too.
            return CheckpointStopped(event.checkpoint), False
        if not event.lost:
            return event, False
        self._losses[taken] += 1
        if self._losses[taken] >= (_TRIES if event.memory else _LOSSES):
            return event, False
        how = self._batches() if event.memory else ""
        return Note(f"{event.message}; what it had not committed is done again{how}"), True

    def _job(self, checkpoint: CheckpointId, piece: Piece) -> Job | None:
        """What a worker is asked to do; None where its files are not what they should be."""
        index = self._indices[checkpoint]
        try:
            folder = self._fetcher.folder(index, on_wait=self._note, after_s=_LONG_S)
            with self._lock:
                said = self._fit.check(folder)
        except LogitbankError as error:
            self._events.put(CheckpointFailed(checkpoint, f"{checkpoint}: {error}"))
            return None
        deposits = piece.share(self._work[checkpoint])
        self._events.put(CheckpointStarted(checkpoint, sum(d.rows for d in deposits)))
        prepared = self._prepared
        return Job(
            checkpoint,
            folder,
            deposits,
            prepared.requested.config.vocab,
            min(prepared.tokenizer.entries, prepared.requested.config.vocab),
            made_of(self._extraction, index, prepared),
            *(self._settings, said),
        )

    def _tried_again(self, worker: WorkerHandle, job: Job) -> Iterator[Event]:
        """Events of a job, run again where its process dies: often chance, or another's memory.

        What was committed is not run again; who dies twice without committing anything is left.
        Where memory was short, batches are half as large from then on, in all workers to come.
        """
        tries = 0
        while True:
            again = False
            for event in worker.run(job):
                if isinstance(event, BlockCommitted):
                    tries = 0
                if isinstance(event, CheckpointFailed):
                    less = smaller(job.settings) if event.memory else None
                    again = tries + 1 < _TRIES if event.crash else less is not None
                    again = again and not (event.lost or self._stopping.requested)
                    tries += event.crash
                    if less is not None and (again or event.lost):
                        self._settings, job = less, replace(job, settings=less)
                    if again:
                        how = "" if less is None else self._batches()
                        event = Note(f"{event.message}; trying it once more{how}")
                yield event
            if not again:
                return

    def _batches(self) -> str:
        return f" with batches of {self._settings.max_batch_tokens:,} tokens"

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
                if checkpoint in self._given_up or self._hopeless:
                    return  # another part of it has, or it was begun when all was over
                self._summary.failed.append(event)
                self._fetcher.done(self._indices[checkpoint])
                with self._lock:
                    self._given_up.add(checkpoint)
                    self._todo = [each for each in self._todo if each[0] != checkpoint]
                if is_hopeless(self._summary):
                    self._hopeless = True
                    self._stopping.ask()
            case CheckpointStopped():
                self._stopping.ask()
            case Note(text=text):
                self._summary.notes.append(text)
            case WeightsLoaded(checkpoint=checkpoint, weights=weights):
                if (twin := self._weights.setdefault(weights, checkpoint)) != checkpoint:
                    self._handle(Note(f"{checkpoint} has the same weights as {twin}"))
        self._on_event(event)
