"""What a worker is asked to do, a frozen value that crosses process borders, and how to ask it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.weights.config_identity import ConfigFields
from logitbank.engine.workers.events import Event
from logitbank.store.format.schema import CheckpointId, Json


@dataclass(frozen=True, slots=True)
class Job:
    """One checkpoint's share of a plan."""

    checkpoint: CheckpointId
    folder: Path
    deposits: tuple[DepositPlan, ...]
    vocab: int
    """Outputs of the head that predicts tokens."""
    vocab_entries: int
    """Entries of the tokenizer; outputs from here on are padding."""
    provenance: dict[str, Json]
    settings: EngineSettings
    """The same in all jobs of a run."""
    config: ConfigFields
    """Fields that identify the checkpoint's model: one engine runs jobs whose fields are equal."""


class WorkerHandle(Protocol):
    """The near side of a worker, wherever it runs."""

    def ready(self) -> bool:
        """Whether it can take a job now: on a cluster it may have to wait for a machine."""

    def run(self, job: Job) -> Iterator[Event]:
        """Its events; the last is CheckpointDone, CheckpointStopped or CheckpointFailed."""

    def interrupt(self) -> None:
        """Ask it to leave its job after the block at hand. May be called from any thread."""
