"""What follows from the failure of a checkpoint: retry, skip or abort. Pure."""

from dataclasses import dataclass
from typing import Literal

from logitbank.engine.workers.events import CheckpointFailed

MAX_CRASHES = 2
"""Deaths of a worker's process without a commit in between; one may be chance."""
MAX_LOSSES = 10
"""Machines lost, one after the other, without a commit in between."""
MAX_ENGINE_FAILURES = 2
"""Failures of the engine before any checkpoint is done."""


@dataclass(frozen=True, slots=True)
class History:
    """What happened before a failure."""

    crashes: int = 0
    """Deaths of the worker's process since the last commit, this one included."""
    losses: int = 0
    """Machines lost since the last commit, this one included."""
    can_shrink: bool = False
    """Whether batches can be made smaller."""
    stopping: bool = False
    """Whether the run is being stopped."""
    done: int = 0
    """Checkpoints that are done."""
    engine_failures: int = 0
    """Checkpoints that the engine failed on, this one included."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Run what is not committed again."""

    where: Literal["same worker", "any worker"] = "same worker"
    smaller: bool = False
    """With smaller batches, in all workers from now on."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave the checkpoint out, and go on with the others."""


@dataclass(frozen=True, slots=True)
class Abort:
    """End the run: the others would fail too."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The process ended because the run is being stopped: this is no failure."""


Decision = Retry | Skip | Abort | Stop


def decide(failure: CheckpointFailed, history: History) -> Decision:
    """What to do after a failure.

    Examples
    --------
    >>> crash = CheckpointFailed(None, "killed", cause="crash")
    >>> decide(crash, History(crashes=1)), decide(crash, History(crashes=2))
    (Retry(where='same worker', smaller=False), Skip())
    """
    if history.stopping and failure.cause in ("crash", "lost"):
        return Stop()  # a signal that ends all processes of a job ends a starting engine too
    smaller = failure.out_of_memory and history.can_shrink
    if not history.stopping:
        if failure.cause == "crash" and history.crashes < MAX_CRASHES:
            return Retry(smaller=smaller)
        if failure.cause == "lost":
            allowed = MAX_CRASHES if failure.out_of_memory else MAX_LOSSES
            if history.losses < allowed:
                return Retry("any worker", smaller)
        elif failure.cause != "crash" and smaller:
            return Retry(smaller=True)
    if failure.cause == "fatal":
        return Abort()
    if not history.done and history.engine_failures >= MAX_ENGINE_FAILURES:
        return Abort()
    return Skip()
