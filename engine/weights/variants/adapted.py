"""The tensors of a base with a LoRA adapter added: what a model with that adapter computes with."""

import json
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.engine.weights.digests import ContentDigest
from logitbank.engine.weights.heads import is_head
from logitbank.engine.weights.variants.adapter_config import ADAPTER_CONFIG, AdapterConfig
from logitbank.engine.weights.variants.lora import planned_changes
from logitbank.engine.weights.variants.whole import CheckpointWeights
from logitbank.engine.weights.weights import file_shapes, read_file
from logitbank.errors import WeightsError
from logitbank.store.format.schema import Json

if TYPE_CHECKING:
    import torch

_SAFE, _LEGACY = "adapter_model.safetensors", "adapter_model.bin"
_IN_BY_OUT = ("gpt2", "openai-gpt")
"""Model types whose matrices are (in, out); PEFT looks at the layers' class."""
_digests: dict[tuple[tuple[str, int, int], ...], str] = {}
"""Of bases, by name, size and time of change of their files."""


class AdaptedWeights:
    """A base whose adapted matrices are merged with the adapter's; the rest is the base's own."""

    def __init__(self, folder: Path, base: CheckpointWeights, *, legacy_weights: bool) -> None:
        self._folder, self._base, self.body = folder, base, base.body
        self._config = AdapterConfig.read(folder)
        self._file = adapter_file(folder, legacy_weights=legacy_weights)
        body, shapes = _body_config(base.body), base.shapes()
        _check_orientation(self._config, str(body.get("model_type", "")), folder)
        no_head = not any(map(is_head, shapes))
        self._changes = planned_changes(
            self._config,
            file_shapes(self._file),
            shapes,
            tied=bool(body.get("tie_word_embeddings", no_head)),
            folder=folder,
        )
        self.changed = frozenset(self._changes)
        self._digest = ContentDigest()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._base.shapes()

    def stream(
        self, *, only: Collection[str] | None = None
    ) -> "Iterator[tuple[str, torch.Tensor]]":
        self._digest = ContentDigest()
        tensors = dict(self._digest.watch(read_file(self._file)))
        for name, tensor in tensors.items():
            if not tensor.is_floating_point():
                raise WeightsError(
                    f"{self._file}: {name} is of {tensor.dtype}; floating-point numbers are needed"
                )
        for name, tensor in self._base.stream(only=only):
            change = self._changes.get(name)
            yield name, tensor if change is None else change.applied(tensor, tensors.__getitem__)

    def describe(self) -> dict[str, Json]:
        adapter: dict[str, Json] = {
            "type": "LoRA",
            "weights": self._digest.hexdigest(),
            "base_weights": self._base_digest(),
            "r": self._config.rank,
            "alpha": self._config.alpha,
            "tensors": len(self.changed),
        }
        return {**self._base.describe(), "adapter": adapter}

    def _base_digest(self) -> str:
        """Content digest of the base's tensors, read once in a process while its files stay."""
        files = ((p, p.stat()) for p in sorted(self.body.iterdir()) if p.is_file())
        stamp = tuple((str(p), stat.st_size, stat.st_mtime_ns) for p, stat in files)
        if stamp not in _digests:
            digest = ContentDigest()
            deque(digest.watch(self._base.stream()), maxlen=0)
            _digests[stamp] = digest.hexdigest()
        return _digests[stamp]


def adapter_file(folder: Path, *, legacy_weights: bool) -> Path:
    """The file that holds an adapter's tensors.

    Raises
    ------
    WeightsError
        The folder holds none, a whole model beside it, or only legacy weights that were not asked
        for.
    """
    names = {path.name for path in folder.iterdir()}
    if "config.json" in names and names & {"model.safetensors", "pytorch_model.bin"}:
        raise WeightsError(
            f"{folder} holds a whole model and an adapter ({ADAPTER_CONFIG}), and it is not said"
            " which is meant; move one of them to a folder of its own"
        )
    if _SAFE in names:
        return folder / _SAFE
    if _LEGACY not in names:
        raise WeightsError(f"{folder} holds no {_SAFE}; save the adapter again with PEFT")
    if not legacy_weights:
        raise WeightsError(
            f"{folder} holds only legacy weights ({_LEGACY}) and no {_SAFE}; add --legacy-weights"
            " to load them without running any code they hold"
        )
    return folder / _LEGACY


def _check_orientation(config: AdapterConfig, model_type: str, folder: Path) -> None:
    if config.transposed != (model_type in _IN_BY_OUT):
        which = "(in, out)" if model_type in _IN_BY_OUT else "(out, in)"
        raise WeightsError(
            f"{folder} has fan_in_fan_out {str(config.transposed).lower()}, and its base of type"
            f" {model_type!r} holds matrices as {which}; give the base that it was trained on"
        )


def _body_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # whoever needs it says so
    return config if isinstance(config, dict) else {}
