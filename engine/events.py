"""What an extraction tells whoever watches it. Small frozen values that cross process borders."""

from collections.abc import Callable
from dataclasses import dataclass, field

from logitbank.engine.plan import Plan
from logitbank.store.schema import CheckpointId


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
class RowsScored:
    """Rows since the last such event."""

    checkpoint: CheckpointId
    rows: int


@dataclass(frozen=True, slots=True)
class BlockCommitted:
    """A block is durable."""

    block: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """Every planned block of the checkpoint is committed."""

    checkpoint: CheckpointId
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The checkpoint was given up; others go on unless it is fatal."""

    checkpoint: CheckpointId
    message: str
    fatal: bool = False
    """Nothing else can be done either."""
    restart: bool = False
    """The worker must be replaced before the next checkpoint."""
    crash: bool = False
    """The worker's process died."""
    engine: bool = False
    """The engine failed in a way that may have nothing to do with this checkpoint."""
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A finding worth a line."""

    text: str


Event = (
    Planned
    | CheckpointStarted
    | WeightsLoaded
    | RowsScored
    | BlockCommitted
    | CheckpointDone
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
    """Committed."""
    done: list[CheckpointId] = field(default_factory=list)
    failed: list[CheckpointFailed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        return not (self.failed or self.interrupted)
