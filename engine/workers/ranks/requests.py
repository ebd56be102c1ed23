"""What rank 0 asks the others to do with it, and what they answer."""

from dataclasses import dataclass
from pathlib import Path

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.store.format.schema import Query


@dataclass(frozen=True, slots=True)
class Open:
    """Start the engine on the architecture of a folder."""

    folder: Path
    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class Load:
    """Swap in the weights of a folder, and prove them."""

    folder: Path
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Score:
    """Run queries, whose logits rank 0 keeps."""

    queries: tuple[Query, ...]


Request = Open | Load | Score


@dataclass(frozen=True, slots=True)
class Done:
    """What was asked for is done."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A rank that failed or is gone: the model is not whole any more."""

    message: str
    died: bool = False
    """Its process has ended."""
    memory: bool = False
    """For lack of memory."""
