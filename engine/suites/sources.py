"""Where checkpoints are from, and what a suite of them is."""

from dataclasses import dataclass
from pathlib import Path

from logitbank.engine.weights.digests import sample_digest
from logitbank.store.format.schema import CheckpointId, Json


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A checkpoint on this machine."""

    path: Path
    """Its folder."""

    def describe(self) -> dict[str, Json]:
        """What provenance says of it: the name of its folder, never the path, and a sample of its
        weights."""
        description: dict[str, Json] = {"folder": self.path.name}
        if (sample := sample_digest(self.path)) is not None:
            description["sample"] = sample
        return description


@dataclass(frozen=True, slots=True)
class HubSource:
    """A checkpoint on the hub: one revision of one repository, or a folder in it."""

    repo: str
    revision: str
    folder: str = ""

    @property
    def name(self) -> str:
        """Name of the checkpoint in its repository."""
        return self.folder or self.revision

    def __str__(self) -> str:
        inside = f", folder {self.folder}" if self.folder else ""
        return f"{self.repo} at revision {self.revision}{inside}"

    def describe(self) -> dict[str, Json]:
        """Repository, revision and folder, for provenance."""
        inside: dict[str, Json] = {"folder": self.folder} if self.folder else {}
        return {"repo": self.repo, "revision": self.revision} | inside


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights at one training step of one run, and where they are."""

    id: CheckpointId
    source: LocalSource | HubSource


@dataclass(frozen=True, slots=True)
class Suite:
    """An ordered list of checkpoints of one architecture."""

    name: str
    checkpoints: tuple[Checkpoint, ...]
    """Sorted by run, then by step; a run's release after its steps."""
    notes: tuple[str, ...] = ()
    """What the user should know, one line each: missing, left out, duplicate."""
