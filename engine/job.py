"""What a worker is asked to do, as one frozen value that crosses process borders."""

from dataclasses import dataclass
from pathlib import Path

from logitbank.engine.plan import DepositPlan
from logitbank.store.schema import CheckpointId, Json


@dataclass(frozen=True, slots=True)
class Job:
    """One checkpoint's share of a plan."""

    checkpoint: CheckpointId
    folder: Path
    deposits: tuple[DepositPlan, ...]
    vocab_entries: int
    provenance: dict[str, Json]
    max_length: int
    """Longest sequence of the whole run, for which the engine is sized."""
