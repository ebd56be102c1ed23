"""Decide after the failure of a checkpoint: retry, skip or abort. Pure."""

from dataclasses import dataclass

from logitbank.engine.workers.events import CheckpointFailed

MAX_CRASHES = 2
"""Deaths of a worker's process without a commit between them; one may be chance."""
MAX_LOSSES = 10
"""Lost machines without a commit between them."""
MAX_ENGINE_FAILURES = 2
"""Checkpoints that an engine fails on before any checkpoint is done."""


@dataclass(frozen=True, slots=True)
class History:
    """Events before a failure."""

    crashes: int = 0
    """Deaths of the worker's process since the last commit, this one included."""
    losses: int = 0
    """Lost machines since the last commit, this one included."""
    can_shrink: bool = False
    """Whether batches can be made smaller."""
    stopping: bool = False
    """Whether the run is being stopped."""
    done: int = 0
    """Checkpoints that are done."""
    engine_failures: int = 0
    """Checkpoints that the engine failed on without a retry. Includes this one, unless the failure
    has another cause."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Run the blocks that are not committed again, on any worker."""

    smaller: bool = False
    """Whether all workers use smaller batches from now on."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Continue with the other checkpoints."""


@dataclass(frozen=True, slots=True)
class Abort:
    """End the run: the other checkpoints would also fail."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Not a failure: the process ended because the run is being stopped."""


Decision = Retry | Skip | Abort | Stop


def decide(failure: CheckpointFailed, history: History) -> Decision:
    """The next step after a failure.

    Examples
    --------
    >>> crash = CheckpointFailed(None, "killed", cause="crash")
    >>> decide(crash, History(crashes=1)), decide(crash, History(crashes=2))
    (Retry(smaller=False), Skip())
    """
    if history.stopping and failure.cause in ("crash", "lost"):
        return Stop()  # a signal to all processes of a job also ends a starting engine
    smaller = failure.out_of_memory and history.can_shrink
    if not history.stopping:
        if failure.cause == "crash" and history.crashes < MAX_CRASHES:
            return Retry(smaller)
        if failure.cause == "lost":
            allowed = MAX_CRASHES if failure.out_of_memory else MAX_LOSSES
            if history.losses < allowed:
                return Retry(smaller)
        elif failure.cause != "crash" and smaller:
            return Retry(smaller=True)
    if failure.cause == "fatal":
        return Abort()
    if (
        failure.cause in ("crash", "engine")
        and not history.done
        and history.engine_failures >= MAX_ENGINE_FAILURES
    ):
        return Abort()
    return Skip()
