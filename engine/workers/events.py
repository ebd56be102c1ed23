"""Messages between a run and its workers, frozen values that cross processes, and the summary."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, NamedTuple

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.plan import DepositPlan, Plan, joined_plan
from logitbank.engine.weights.config_identity import ConfigFields
from logitbank.errors import INTERRUPTED
from logitbank.store.format.schema import CheckpointId, Json

Phase = Literal["load", "swap", "check", "score", "write", "wait"]
"""Phases of a worker's time, in this order: starting the engine, reloading and proving
weights, the reference check, scoring prompts, writing blocks while nothing is scored, and waiting
for a job."""


class NextCheckpoint(NamedTuple):
    """A checkpoint that a worker will probably run next, and whose files are present."""

    checkpoint: CheckpointId
    folder: Path


@dataclass(frozen=True, slots=True)
class Job:
    """One task of a worker: a checkpoint and the blocks to score with it."""

    checkpoint: CheckpointId
    folder: Path
    deposits: tuple[DepositPlan, ...]
    vocab: int
    """Outputs of the LM head."""
    vocab_entries: int
    """Entries of the tokenizer; outputs after them are padding."""
    provenance: dict[str, Json]
    settings: EngineSettings
    """The same in all jobs of a run, except smaller batches after a lack of memory."""
    config: ConfigFields
    """Fields that identify the model: one engine runs only jobs with equal fields."""
    following: NextCheckpoint | None = None
    """A checkpoint to read while this one is scored, and to load while its end is written."""
    checked: bool = True
    """Whether the reference check may run."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected duration of a plan, measured with some queries on one checkpoint."""

    start_s: float
    """Starts of engines with their imports by each worker: one for each different config."""
    fixed_s: float
    """Weights reloaded and proved, and deposits sealed, over all checkpoints."""
    score_s: float
    """Scoring of all tokens."""
    checkpoints: int
    tokens: int
    """Tokens to score, over all checkpoints."""
    workers: int
    rows: int = 0
    """Measured rows, without those of the first job."""
    sample_s: float = 0.0
    """Duration of the measurement, with the start of the engine."""

    @property
    def seconds(self) -> float:
        """Duration without downloads and reference checks.

        An upper limit if a model has fewer checkpoints than there are workers, because each worker
        is assumed to start an engine for every model.
        """
        return self.start_s + (self.fixed_s + self.score_s) / self.workers

    @property
    def worker_hours(self) -> float:
        """GPU-hours, if each worker has its own GPU."""
        return self.seconds * self.workers / 3600


def joined_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """The estimate of several plans that the same workers run one after another."""
    sums = {f.name: sum(getattr(each, f.name) for each in estimates) for f in fields(Estimate)}
    return Estimate(**sums | {"workers": estimates[0].workers})


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is complete; nothing has been run."""

    plan: Plan
    engine: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckpointStarted:
    """The files of a checkpoint are present, and a worker gets its job."""

    checkpoint: CheckpointId
    rows: int


@dataclass(frozen=True, slots=True)
class WeightsLoaded:
    """The weights of a checkpoint are loaded and proved."""

    checkpoint: CheckpointId
    weights: str
    """Content digest of the weights."""
    seconds: float


@dataclass(frozen=True, slots=True)
class ReferenceChecked:
    """An engine agrees with plain transformers on a few sequences; fields are of the worst one."""

    checkpoint: CheckpointId
    difference: float
    """Largest difference in logits."""
    allowed: float
    rounding: float
    """Difference of plain transformers in the run's compute dtype from itself in float32."""


@dataclass(frozen=True, slots=True)
class RowsScored:
    """Rows scored since the last such event."""

    checkpoint: CheckpointId
    rows: int
    tokens: int = 0
    """Tokens of their sequences."""


@dataclass(frozen=True, slots=True)
class BlockCommitted:
    """This run has written a block durably to the bank."""

    checkpoint: CheckpointId
    block: int
    rows: int
    bytes: int
    """Size before compression."""


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """Every block of a job is committed; for callers, every planned block of the checkpoint."""

    checkpoint: CheckpointId
    seconds: float
    spent: Mapping[Phase, float] = field(default_factory=dict)
    """Seconds of its worker by phase."""
    tokens: int = 0
    """Tokens of all scored queries."""
    reused: int = 0
    """Tokens that were not run, because a prefix cache or another query covers them."""


@dataclass(frozen=True, slots=True)
class CheckpointStopped:
    """A worker stopped after its current block, on request."""

    checkpoint: CheckpointId


Cause = Literal["checkpoint", "load", "engine", "crash", "lost", "fatal"]
"""Why a checkpoint failed: its files or prompts; a load that may leave the engine with a part of
the weights; an error of the engine; the death of the worker's process; the loss of its machine; or
a problem of every checkpoint, such as a full disk."""


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """A checkpoint, or the rest of it, cannot be run."""

    checkpoint: CheckpointId
    message: str
    cause: Cause = "checkpoint"
    out_of_memory: bool = False
    log_tail: tuple[str, ...] = ()


Outcome = CheckpointDone | CheckpointStopped | CheckpointFailed
"""The last event of a job."""


@dataclass(frozen=True, slots=True)
class Note:
    """One line of information for the user, such as why an engine was chosen."""

    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """With `--watch`, no checkpoint is complete; sent after each look at the folder."""

    text: str


@dataclass(frozen=True, slots=True)
class Preparing:
    """A step before or after scoring begins."""

    text: str
    """Name of the step."""


@dataclass(frozen=True, slots=True)
class SuiteFailed:
    """A suite that cannot be found, read or planned. The others are run."""

    suite: str
    message: str


Event = (
    Planned
    | SuiteFailed
    | Waiting
    | Preparing
    | CheckpointStarted
    | WeightsLoaded
    | ReferenceChecked
    | RowsScored
    | BlockCommitted
    | Outcome
    | Note
)
OnEvent = Callable[[Event], None]


@dataclass(slots=True)
class Summary:
    """Result of an extraction."""

    plan: Plan
    seconds: float = 0.0
    rows: int = 0
    """Rows committed by this run."""
    others: int = 0
    """Planned rows of finished checkpoints that another run committed during this one."""
    done: list[CheckpointId] = field(default_factory=list)
    failed: list[CheckpointFailed] = field(default_factory=list)
    failed_suites: list[SuiteFailed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    aborted: bool = False
    """Whether the run ended because the other checkpoints would also fail."""
    workers: int = 1
    spent: dict[Phase, float] = field(default_factory=dict)
    """Seconds of all workers by phase."""
    tokens: int = 0
    """Tokens of the queries of finished checkpoints."""
    reused: int = 0
    """Tokens that were not run, because a prefix cache or another query covers them."""
    bytes: int = 0
    """Committed bytes before compression."""
    estimate: Estimate | None = None
    """Duration of the plan, if a dry run measured it."""
    models: int = 1
    """Number of different configs among the planned checkpoints of a dry run."""

    @property
    def complete(self) -> bool:
        return not (self.failed or self.failed_suites or self.interrupted)

    @property
    def exit_code(self) -> int:
        """Exit code of the command line; an interrupted run may still find failures."""
        return INTERRUPTED if self.interrupted else int(not self.complete)


def add_summary(total: Summary, part: Summary) -> None:
    """Add the summary of one extraction to the total of several."""
    total.plan = joined_plan([total.plan, part.plan])
    for name in ("seconds", "rows", "others", "tokens", "reused", "bytes", "done", "failed"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    total.notes += [note for note in part.notes if note not in total.notes]
    total.interrupted |= part.interrupted
    total.aborted |= part.aborted
    total.workers = part.workers
    for phase, seconds in part.spent.items():
        total.spent[phase] = total.spent.get(phase, 0.0) + seconds


def add_costs(event: CheckpointDone, *, summary: Summary, spent: dict[Phase, float]) -> None:
    """Add the costs of one job to the summary and to its checkpoint."""
    summary.tokens += event.tokens
    summary.reused += event.reused
    for total in (summary.spent, spent):
        for phase, seconds in event.spent.items():
            total[phase] = total.get(phase, 0.0) + seconds
