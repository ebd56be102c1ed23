"""`--watch`: look at a training's folder every minute, and run complete checkpoints."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from logitbank.engine.backends.protocol import EngineStart
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.plan import Plan
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.request import ExtractRequest
from logitbank.engine.run import run
from logitbank.engine.suites.suites import Checkpoint, LocalSource, Suite, resolve_suite
from logitbank.engine.weights.weights import check_weights
from logitbank.engine.workers.events import OnEvent, Summary, Waiting, add_summary
from logitbank.engine.workers.stopping import Stopping
from logitbank.errors import SuiteError, UsageError, WeightsError
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import StepSelector, parse_steps

LOOK_S = 60.0
"""Seconds between two looks at the folder."""
STABLE = "STABLE"
"""Name of an empty file that marks a checkpoint as complete."""


def watch(
    path: str | Path,
    request: ExtractRequest,
    prompts: Sequence[PromptSet],
    start: EngineStart,
    parallel: ParallelConfig,
    *,
    on_event: OnEvent,
) -> Summary:
    """Run each checkpoint of a folder once it is complete, until a signal or an aborted run.

    A checkpoint is complete if its weight files and their index agree at two looks, so that files
    written after the weights exist too, or at once if its folder has a file `STABLE`. A failed
    checkpoint is not retried. Between runs there is no engine, so that the GPU is free.

    Raises
    ------
    LogitbankError
        As `run`; or the folder does not exist, or the steps depend on future checkpoints.
    """
    path, folder = Path(path), Path(str(request.listed[0])).expanduser()
    steps = parse_steps(request.steps)
    if steps.kind == "log" or steps.last or steps.release:
        raise UsageError(
            f"--steps {steps.text} depends on future checkpoints. With --watch use all, "
            "START:STOP:STRIDE, or a list of numbers."
        )
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder. Pass the folder that the training saves to.")
    total, stopping = Summary(Plan((), 0, 0, 0)), Stopping(deadline=parallel.job_end)
    tried: set[CheckpointId] = set()
    complete: set[CheckpointId] = set()
    try:
        with stopping.on_sigterm():
            while not stopping.requested:
                suite, before = _saved(folder, request.model, steps), complete
                complete = {c.id for c in suite.checkpoints if _has_all_weights(c)}
                ready = [
                    c for c in suite.checkpoints
                    if c.id in complete - tried
                    and (c.id in before or (_folder(c) / STABLE).is_file())
                ]  # fmt: skip
                if ready:
                    found = replace(suite, checkpoints=tuple(ready))
                    part = run(
                        path, request, [found], prompts,
                        start=start, parallel=parallel, on_event=on_event,
                    )  # fmt: skip
                    tried |= {c.id for c in ready}
                    add_summary(total, part)
                    if part.aborted or part.interrupted:
                        return total
                else:
                    why = "".join(f"; {note}" for note in suite.notes[:1])
                    on_event(Waiting(f"waiting for the next checkpoint in {folder}{why}"))
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        pass
    total.interrupted = True
    return total


def _saved(folder: Path, model: str | None, steps: StepSelector) -> Suite:
    """The checkpoints of the chosen steps that exist now; possibly none."""
    try:
        suite = resolve_suite(str(folder.absolute()), model=model)
    except SuiteError as error:
        return Suite(folder.name, (), (str(error),))
    chosen = {*steps.pick([c.id.step for c in suite.checkpoints if c.id.step is not None])}
    return replace(suite, checkpoints=tuple(c for c in suite.checkpoints if c.id.step in chosen))


def _folder(checkpoint: Checkpoint) -> Path:
    assert isinstance(checkpoint.source, LocalSource)
    return checkpoint.source.path


def _has_all_weights(checkpoint: Checkpoint) -> bool:
    """Whether the weight files exist and are as long as their headers say."""
    try:
        check_weights(_folder(checkpoint))
    except (WeightsError, OSError):  # it may be deleted meanwhile
        return False
    return True
