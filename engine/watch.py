"""`--watch`: look at a training's folder every minute, and run what is complete, in one pool."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.plan import Plan
from logitbank.engine.run import run
from logitbank.engine.suites.suites import Checkpoint, LocalSource, Suite, resolve_suite
from logitbank.engine.weights.weights import check_weights
from logitbank.engine.workers.events import OnEvent, Summary, Waiting, add_summary
from logitbank.engine.workers.pool import LocalPool
from logitbank.engine.workers.stopping import Stopping
from logitbank.engine.workers.worker_process import log_of_run
from logitbank.errors import SuiteError, UsageError, WeightsError
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import StepSelector, parse_steps

LOOK_S = 60.0
"""Seconds between two looks at the folder."""
STABLE = "STABLE"
"""A file of this name beside a checkpoint's weights says that the checkpoint is complete."""


def watched_steps(steps: str) -> StepSelector:
    """A choice of steps that does not depend on which steps there will be.

    Raises
    ------
    UsageError
        It does, or cannot be read.
    """
    selector = parse_steps(steps)
    if selector.kind == "log" or selector.last or selector.release:
        raise UsageError(
            f"steps {steps!r} can be chosen only when all are there; with --watch use all, "
            "START:STOP:STRIDE, or a list of numbers"
        )
    return selector


def watch(
    path: str | Path,
    folder: Path,
    define: Callable[[Suite], Extraction],
    *,
    steps: StepSelector,
    model: str | None,
    stop_at: float | None,
    on_event: OnEvent,
) -> Summary:
    """Run each checkpoint of a folder once it is complete, until a signal or an aborted run.

    A checkpoint is complete where its weight files and their index agree at two looks, so that what
    is written after them is there too; at once where a file `STABLE` lies beside them. A checkpoint
    that failed is not tried again.

    Raises
    ------
    LogitbankError
        As `run`; or `folder` is no folder.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder to watch; give the one that the training saves to")
    total, stopping = Summary(Plan((), 0, 0, 0)), Stopping(at=stop_at)
    tried: set[CheckpointId] = set()
    whole: set[CheckpointId] = set()
    pool: LocalPool | None = None
    try:
        with stopping.on_sigterm(), ExitStack() as ends:
            while not stopping.requested:
                suite, before = _saved(folder, model, steps), whole
                whole = {c.id for c in suite.checkpoints if _agree(c)}
                ready = [
                    c for c in suite.checkpoints
                    if c.id in whole - tried and (c.id in before or _is_stable(c))
                ]  # fmt: skip
                if not ready:
                    why = "".join(f"; {note}" for note in suite.notes[:1])
                    on_event(Waiting(f"waiting for the next checkpoint in {folder}{why}"))
                    time.sleep(LOOK_S)
                    continue
                extraction = define(replace(suite, checkpoints=tuple(ready)))
                if pool is None:
                    ends.enter_context(log_of_run(Path(path), alone=True))()
                    count = extraction.parallel.workers
                    pool = ends.enter_context(LocalPool(Path(path), extraction.settings, count))
                part = run(path, extraction, pool=pool, stopping=stopping, on_event=on_event)
                tried |= {c.id for c in ready}
                add_summary(total, part)
                if part.aborted:
                    return total
                time.sleep(LOOK_S)  # between any two looks
    except KeyboardInterrupt:
        pass
    total.interrupted = True
    return total


def _saved(folder: Path, model: str | None, steps: StepSelector) -> Suite:
    """The checkpoints that are there now and whose steps are wanted; there may be none yet."""
    try:
        suite = resolve_suite(str(folder.absolute()), model=model)
    except SuiteError as error:  # none yet, or one that is only begun
        return Suite(folder.name, (), (str(error),))
    wanted = {*steps.pick([c.id.step for c in suite.checkpoints if c.id.step is not None])}
    return replace(suite, checkpoints=tuple(c for c in suite.checkpoints if c.id.step in wanted))


def _folder(checkpoint: Checkpoint) -> Path:
    assert isinstance(checkpoint.source, LocalSource)
    return checkpoint.source.path


def _agree(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint's weight files are all there, as long as their headers say."""
    try:
        check_weights(_folder(checkpoint))
    except (WeightsError, OSError):  # it may be deleted meanwhile
        return False
    return True


def _is_stable(checkpoint: Checkpoint) -> bool:
    return (_folder(checkpoint) / STABLE).is_file()
