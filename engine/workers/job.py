"""What a worker is asked to do, as one frozen value that crosses process borders."""

from dataclasses import dataclass
from pathlib import Path

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.plan import DepositPlan
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
