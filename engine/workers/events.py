"""What an extraction tells whoever watches it. Small frozen values that cross process borders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from logitbank.engine.plan.plan import Plan
from logitbank.errors import INTERRUPTED
from logitbank.store.format.schema import CheckpointId

Phase = Literal["load", "swap", "canary", "score", "write", "wait"]
"""What a worker's time goes into: an engine's start, weights exchanged and proved, a sequence
checked independently, prompts scored, blocks written while nothing is scored, nothing to do."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a whole plan will take, measured on one checkpoint and some queries."""

    load_s: float
    """An engine's start, once for each worker and each of the `models`."""
    checkpoint_s: float
    """Seconds for each checkpoint, whatever is asked: weights swapped and proved, deposits
    sealed."""
    tokens_per_s: float
    checkpoints: int
    tokens: int
    """Tokens to be scored, over all checkpoints."""
    workers: int
    rows: int = 0
    """Measured, apart from those of the first job."""
    sample_s: float = 0.0
    """What measuring took, an engine's start included."""
    models: int = 1
    """Models that the checkpoints are of, by their configs; each needs an engine of its own."""

    @property
    def seconds(self) -> float:
        """Seconds from beginning to end, without waiting for downloads.

        At most, where a model has fewer checkpoints than there are workers: each is reckoned to
        start an engine for every model.
        """
        work = self.checkpoints * self.checkpoint_s + self.tokens / self.tokens_per_s
        return self.load_s * self.models + work / self.workers

    @property
    def worker_hours(self) -> float:
        """GPU-hours, where each worker has a GPU of its own."""
        return self.seconds * self.workers / 3600


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is made; nothing has been run."""

    plan: Plan
    engine: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckpointStarted:
    """Its weights are at hand and its job is with the worker."""

    checkpoint: CheckpointId
    rows: int


@dataclass(frozen=True, slots=True)
class WeightsLoaded:
    """Swapped in and proved."""

    checkpoint: CheckpointId
    weights: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CanaryChecked:
    """A few sequences were evaluated independently, and agree; numbers are of the worst."""

    checkpoint: CheckpointId
    difference: float
    """Largest, in logits."""
    allowed: float
    rounding: float
    """Difference of plain transformers in the run's compute dtype from itself in float32."""


@dataclass(frozen=True, slots=True)
class RowsScored:
    """Rows since the last such event."""

    checkpoint: CheckpointId
    rows: int
    tokens: int = 0
    """Tokens of their sequences."""


@dataclass(frozen=True, slots=True)
class BlockCommitted:
    """A block is durable, and this run made it so."""

    checkpoint: CheckpointId
    block: int
    rows: int
    bytes: int
    """Before compression."""


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """Every planned block of the checkpoint is committed."""

    checkpoint: CheckpointId
    seconds: float
    spent: Mapping[Phase, float] = field(default_factory=dict)
    """Seconds of its worker, by what they went into."""
    tokens: int = 0
    """Tokens of all queries scored."""
    reused: int = 0
    """Tokens of these that were not run: from the prefix cache, or of a sequence that was run for
    another query."""


@dataclass(frozen=True, slots=True)
class CheckpointStopped:
    """Its worker was asked to stop, and did after the block at hand."""

    checkpoint: CheckpointId


Cause = Literal["checkpoint", "load", "engine", "crash", "lost", "fatal"]
"""Why a checkpoint failed: its own files or prompts; a load that may have left half a model in the
engine; an error of the engine; the death of the worker's process; the loss of its machine; or
something that ends the run, such as a full disk."""


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The checkpoint cannot be run, or what is left of it."""

    checkpoint: CheckpointId
    message: str
    cause: Cause = "checkpoint"
    out_of_memory: bool = False
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A finding worth a line."""

    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who follows a training has nothing to do; told at each look at its folder."""

    text: str
    """What is waited for."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """A step before or after scoring begins."""

    text: str
    """Name of the step."""


Event = (
    Planned
    | Waiting
    | Preparing
    | CheckpointStarted
    | WeightsLoaded
    | CanaryChecked
    | RowsScored
    | BlockCommitted
    | CheckpointDone
    | CheckpointStopped
    | CheckpointFailed
    | Note
)


OnEvent = Callable[[Event], None]


@dataclass(slots=True)
class Summary:
    """What an extraction did."""

    plan: Plan
    seconds: float = 0.0
    rows: int = 0
    """Committed by this run."""
    others: int = 0
    """Planned rows of checkpoints that are done which somebody else had committed meanwhile."""
    done: list[CheckpointId] = field(default_factory=list)
    failed: list[CheckpointFailed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    aborted: bool = False
    """Whether it ended because the other checkpoints would fail too."""
    workers: int = 1
    spent: dict[Phase, float] = field(default_factory=dict)
    """Seconds of all workers, by what they went into."""
    tokens: int = 0
    """Tokens of the queries of checkpoints that are done."""
    reused: int = 0
    """Tokens of these that were not run."""
    prefix_cache: bool = False
    """Whether the engine has one: what it did not run began like something that it had."""
    bytes: int = 0
    """Committed, before compression."""

    estimate: Estimate | None = None
    """How long the plan will take, where a dry run measured it."""
    models: int = 1
    """Models among the checkpoints that a dry run plans, by their configs. Each worker starts at
    most one engine for each."""

    @property
    def complete(self) -> bool:
        return not (self.failed or self.interrupted)

    @property
    def exit_code(self) -> int:
        """Exit code of the command line. One that was interrupted may still find out what fails."""
        return INTERRUPTED if self.interrupted else int(not self.complete)


def add_summary(total: Summary, part: Summary) -> None:
    """Add what one of several extractions did to what all of them did."""
    plans = total.plan, part.plan
    total.plan = Plan(
        tuple(deposit for plan in plans for deposit in plan.deposits),
        checkpoints=sum(plan.checkpoints for plan in plans),
        queries=max(plan.queries for plan in plans),
        prompts=max(plan.prompts for plan in plans),
        orders=max(plan.orders for plan in plans),
    )
    for name in ("seconds", "rows", "others", "tokens", "reused", "bytes", "done", "failed"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    total.notes += [note for note in part.notes if note not in total.notes]
    total.interrupted |= part.interrupted
    total.aborted |= part.aborted
    total.workers, total.prefix_cache = part.workers, part.prefix_cache
    for phase, seconds in part.spent.items():
        total.spent[phase] = total.spent.get(phase, 0.0) + seconds


def add_costs(
    event: CheckpointDone, *, summary: Summary, of_checkpoint: dict[Phase, float]
) -> None:
    """Add what one worker's part of a checkpoint took to the summary and to its checkpoint."""
    summary.tokens += event.tokens
    summary.reused += event.reused
    for total in (summary.spent, of_checkpoint):
        for phase, seconds in event.spent.items():
            total[phase] = total.get(phase, 0.0) + seconds
