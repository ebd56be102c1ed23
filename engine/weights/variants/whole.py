"""What engines ask of a checkpoint's weights, and the plain case: a folder that holds them all."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from logitbank.engine.weights.weights import stream_weights, tensor_shapes
from logitbank.store.format.schema import Json

if TYPE_CHECKING:
    import torch


class CheckpointWeights(Protocol):
    """The tensors that one checkpoint is run with."""

    body: Path
    """Folder of the config and the architecture: the checkpoint's own, or an adapter's base."""
    changed: frozenset[str]
    """Names of the tensors that an adapter makes others of than the body's."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors, by name; reads headers alone."""

    def stream(
        self, *, only: Collection[str] | None = None
    ) -> "Iterator[tuple[str, torch.Tensor]]":
        """Each tensor's name and values, one at a time; of `only` these names where given."""

    def describe(self) -> dict[str, Json]:
        """What provenance says of how they came about, once they were streamed."""


class WholeWeights:
    """A folder whose files hold the tensors as they are run."""

    changed: frozenset[str] = frozenset()

    def __init__(self, folder: Path, *, legacy_weights: bool) -> None:
        self.body, self._legacy = folder, legacy_weights

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return tensor_shapes(self.body, legacy_weights=self._legacy)

    def stream(
        self, *, only: Collection[str] | None = None
    ) -> "Iterator[tuple[str, torch.Tensor]]":
        return stream_weights(self.body, legacy_weights=self._legacy, only=only)

    def describe(self) -> dict[str, Json]:
        return {}
