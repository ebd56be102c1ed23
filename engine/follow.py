"""Follow a running training: each checkpoint is run once it is all there, by engines that stay."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.fit import Fit
from logitbank.engine.plan.plan import Plan
from logitbank.engine.plan.share import Share
from logitbank.engine.plan.spread import Spread
from logitbank.engine.run import run
from logitbank.engine.suites.bases import base_itself
from logitbank.engine.suites.complete import Watch
from logitbank.engine.suites.folders import FoundCheckpoint
from logitbank.engine.suites.growing import GrowingFolder, WantedSteps
from logitbank.engine.suites.sources import Base, Checkpoint, LocalSource, Suite
from logitbank.engine.workers.events import (
    CheckpointFailed,
    Event,
    Note,
    OnEvent,
    Summary,
    Waiting,
    add_summary,
    is_hopeless,
)
from logitbank.engine.workers.stopping import Stopping
from logitbank.engine.workers.worker_process import WorkerProcess, log_of_run
from logitbank.errors import LogitbankError, SuiteError, UsageError, WeightsError
from logitbank.store.files.locks import try_lock
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import run_seed

LOOK_S = 2.0
"""Seconds between two looks at the folder."""


def follow_training(
    path: str | Path,
    folder: Path,
    define: Callable[[Suite], Extraction],
    *,
    steps: WantedSteps,
    about: Mapping[str, str] | None = None,
    model: str | None = None,
    base: Base | None = None,
    legacy_weights: bool = False,
    spread: Spread = Spread(),  # noqa: B008 (frozen)
    on_event: OnEvent = lambda _: None,
) -> Summary:
    """Run each checkpoint that a training saves into `folder`, until the training has ended.

    It has ended when its newest checkpoint notes as many steps as there are to be, or is that of
    the last step wanted; Ctrl-C and SIGTERM interrupt it. A checkpoint that is deleted before its
    turn is a note.

    Parameters
    ----------
    define
        Makes the extraction of a suite; called whenever checkpoints are complete.
    base
        What the training's adapters are added to, where it saves such; they are runs of its model.

    Raises
    ------
    LogitbankError
        As `run`; or the folder is a file, or somebody else follows it into the same bank.
    """
    watch = Watch(legacy_weights=legacy_weights)
    growing = GrowingFolder(folder, steps, watch, base=base is not None)
    own = folder.resolve().name if base is None else base_itself(base, None).id.model
    growing.look()  # refuses a file before anything is begun
    follower = _Follower(
        *(Path(path), growing, define),
        name=model or own,
        base=base,
        about=about or {},
        legacy_weights=legacy_weights,
        spread=replace(spread, shard=None),
        on_event=on_event,
    )
    with _alone(Path(path), folder):
        return follower.run()


@contextmanager
def _alone(bank: Path, folder: Path) -> Iterator[None]:
    """Be the only one who follows this folder into this bank; several folders may share a bank."""
    bank, folder = bank.resolve(), folder.resolve()
    bank.parent.mkdir(parents=True, exist_ok=True)
    digest = sha256(str(folder).encode()).hexdigest()[:12]
    lock = bank.with_name(f".{bank.name}.follow-{digest}")
    handle = try_lock(lock, create=True)
    if handle is None:
        raise UsageError(
            f"another run follows {folder} into {bank} already; leave it to that one, or give "
            "another bank"
        )
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


class _Follower:
    """Looks, runs and waits, in turn."""

    def __init__(
        self,
        path: Path,
        growing: GrowingFolder,
        define: Callable[[Suite], Extraction],
        *,
        name: str,
        base: Base | None,
        about: Mapping[str, str],
        legacy_weights: bool,
        spread: Spread,
        on_event: OnEvent,
    ) -> None:
        self._path, self._growing, self._define = path, growing, define
        self._name, self._about, self._legacy = name, about, legacy_weights
        self._base = base
        self._spread, self._on_event = spread, on_event
        self._stopping = Stopping(at=spread.stop_at)
        self._workers: Sequence[WorkerProcess] = ()
        self._fit: Fit | None = None
        self._total = Summary(Plan((), 0, 0, 0))
        self._given_up = False

    def run(self) -> Summary:
        """All of it, from the first look to the end."""
        try:
            with self._stopping.on_sigterm(), ExitStack() as ends:
                while not (self._given_up or self._stopping.requested):
                    look = self._growing.look()
                    for found in look.deleted:
                        self._tell_deleted(found)
                    if look.complete:
                        self._run(look.complete, ends)
                    elif end := self._growing.end():
                        for text in (*self._growing.left_out(), end):
                            self._note(text)
                        return self._total
                    else:
                        self._on_event(Waiting(self._growing.waits_for()))
                        time.sleep(LOOK_S)
        except KeyboardInterrupt:
            self._total.interrupted = True
        self._total.interrupted |= not self._given_up
        return self._total

    def _run(self, complete: Sequence[FoundCheckpoint], ends: ExitStack) -> None:
        """Run checkpoints; what is deleted meanwhile is told, and the next look has the others."""
        by_id = {CheckpointId(self._name, f.run, f.step, run_seed(f.run)): f for f in complete}
        of_adapters, base = (None, None) if self._base is None else self._base
        checkpoints = [
            Checkpoint(checkpoint, LocalSource(found.path, of_adapters if found.adapter else None))
            for checkpoint, found in by_id.items()
            if self._fits(checkpoint, found)
        ]
        if not checkpoints:
            return

        def tell(event: Event) -> None:
            failed = isinstance(event, CheckpointFailed) and by_id[event.checkpoint]
            if not (failed and self._growing.is_going(failed)):
                self._on_event(event)

        suite = Suite(self._name, tuple(checkpoints), base=base)
        extraction = replace(self._define(suite), occasion="follow")
        try:
            part = run(
                *(self._path, extraction),
                about=self._about,
                spread=self._spread,
                kept=self._workers or self._started(extraction, ends),
                stopping=self._stopping,
                on_event=tell,
            )
        except (LogitbankError, OSError):
            if not [found for found in complete if self._was_deleted(found)]:
                raise
            return
        part.failed = [f for f in part.failed if not self._was_deleted(by_id[f.checkpoint])]
        add_summary(self._total, part)
        self._given_up = is_hopeless(part) or is_hopeless(self._total)
        for found in by_id.values():
            self._growing.done(found)

    def _started(self, extraction: Extraction, ends: ExitStack) -> Sequence[WorkerProcess]:
        """Workers for all that is to come; what is left of them at the end is killed."""
        ends.enter_context(log_of_run(self._path, alone=True))()
        workers, ranks = self._spread.workers, extraction.settings.tensor_parallel_size
        shares = [Share(i, workers, ranks) for i in range(workers)]
        self._workers = [WorkerProcess(self._path, extraction.settings, share) for share in shares]
        for worker in self._workers:
            ends.enter_context(worker)
        return self._workers

    def _fits(self, checkpoint: CheckpointId, found: FoundCheckpoint) -> bool:
        """Whether it has the architecture and tokenizer of the first; else that is told."""
        try:
            base = None if self._base is None else self._base.folder
            self._fit = self._fit or Fit.of(found.path, legacy_weights=self._legacy, base=base)
            self._fit.check(found.path)
        except (SuiteError, WeightsError, OSError) as error:
            if self._was_deleted(found):
                return False
            if self._fit is None:
                raise
            failure = CheckpointFailed(checkpoint, f"{checkpoint}: {error}")
            self._total.failed.append(failure)
            self._on_event(failure)
            self._growing.done(found)
            return False
        return True

    def _was_deleted(self, found: FoundCheckpoint) -> bool:
        """Whether it is gone or going, which is told then."""
        if not self._growing.is_going(found):
            return False
        self._growing.done(found)
        self._tell_deleted(found)
        return True

    def _tell_deleted(self, found: FoundCheckpoint) -> None:
        self._note(f"{found.path} was deleted before it was run (save_total_limit, perhaps)")

    def _note(self, text: str) -> None:
        self._total.notes.append(text)
        self._on_event(Note(text))
