"""A quantised checkpoint's tensors as the numbers that they stand for, in float32.

What was rounded when the weights were quantised stays rounded. Activations and caches, which some
methods round too, are not.
"""

import importlib
import json
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.engine.weights.variants import schemes
from logitbank.engine.weights.variants.scheme import Scheme, refused
from logitbank.engine.weights.weights import stream_weights, tensor_shapes
from logitbank.errors import WeightsError
from logitbank.store.format.schema import Json

if TYPE_CHECKING:
    import torch


_OF_TWO_AXES = ("weight", "qweight", "weight_packed")
_OF_MODELOPT = "hf_quant_config.json"


class QuantisedWeights:
    """Matrices are restored one at a time; what is not quantised is the file's own."""

    changed: frozenset[str] = frozenset()

    def __init__(self, folder: Path, scheme: Scheme, *, legacy_weights: bool) -> None:
        self.body, self._scheme, self._legacy = folder, scheme, legacy_weights
        self._stored = tensor_shapes(folder, legacy_weights=legacy_weights)
        self._matrices = _matrices(self._stored, scheme, folder)
        parts = {name for each in self._matrices.values() for name in each.values()}
        unused = tuple(f".{each}" for each in scheme.unused)
        self._others = [n for n in self._stored if n not in parts and not n.endswith(unused)]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        others = {name: self._stored[name] for name in self._others}
        return others | {
            name: self._scheme.shape({end: self._stored[part] for end, part in parts.items()})
            for name, parts in self._matrices.items()
        }

    def stream(
        self, *, only: Collection[str] | None = None
    ) -> "Iterator[tuple[str, torch.Tensor]]":
        others = [name for name in self._others if only is None or name in only]
        for name, tensor in self._read(others):
            if tensor.element_size() == 1 and tensor.is_floating_point():
                raise WeightsError(
                    f"{self.body}: {name} is of {tensor.dtype} and has no scale; fetch the"
                    " checkpoint again"
                )
            yield name, tensor
        for name, parts in self._matrices.items():
            if only is not None and name not in only:
                continue
            stored = dict(self._read(parts.values()))
            try:
                restored = self._scheme.restored({e: stored[part] for e, part in parts.items()})
            except WeightsError as error:
                raise WeightsError(f"{self.body}: {name}: {error}") from error
            yield name, restored

    def _read(self, names: Collection[str]) -> "Iterator[tuple[str, torch.Tensor]]":
        if names:
            yield from stream_weights(self.body, legacy_weights=self._legacy, only=names)

    def describe(self) -> dict[str, Json]:
        scheme = self._scheme
        made: dict[str, Json] = {"method": scheme.method, "bits": scheme.bits}
        return {"quantization": {**made, **scheme.further, "tensors": len(self._matrices)}}


def _matrices(
    stored: Mapping[str, tuple[int, ...]], scheme: Scheme, folder: Path
) -> dict[str, dict[str, str]]:
    """Of each quantised matrix, the names of its parts by their ends."""
    matrices: dict[str, dict[str, str]] = {}
    for name in sorted(stored):
        module, _, end = name.rpartition(".")
        if end == scheme.marker:
            ends = (end, *sorted(scheme.parts | scheme.optional))
            parts = {e: f"{module}.{e}" for e in ends if f"{module}.{e}" in stored}
            if missing := sorted(scheme.parts.difference(parts)):
                raise WeightsError(
                    f"{folder} lacks {missing[0]} of {module}, which is quantised; fetch the"
                    " checkpoint again"
                )
            axes = {e: len(stored[part]) for e, part in parts.items()}
            if max(axes.values()) > 2 or any(axes.get(e, 2) != 2 for e in _OF_TWO_AXES):
                raise refused(folder, scheme.method, f"and {name} is of no matrix")
            matrices[f"{module}.weight"] = parts
    if not matrices:
        raise refused(folder, scheme.method, f"and no tensor is called {scheme.marker}")
    return matrices


def scheme_of(folder: Path) -> Scheme | None:
    """How a folder's weights are quantised, by its config; None where they are not.

    Raises
    ------
    WeightsError
        They are in a way that is not supported.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # whoever needs it says so
    fields = config.get("quantization_config") if isinstance(config, dict) else None
    if not fields and isinstance(config, dict):
        fields = config.get("compression_config")
    if not fields and (folder / _OF_MODELOPT).is_file():
        raise refused(folder / _OF_MODELOPT, "modelopt", "which is not supported")
    if not fields:
        return None
    method = fields.get("quant_method") if isinstance(fields, dict) else fields
    known = _schemes()
    if method not in known:
        raise refused(path, method, f"which is not supported ({', '.join(sorted(known))} are)")
    scheme: Scheme = known[method].scheme(fields, path)
    return scheme


@cache
def _schemes() -> dict[str, Any]:
    """Modules that know a method, by its name in config.json."""
    found = (
        importlib.import_module(f"{schemes.__name__}.{each.name}")
        for each in pkgutil.iter_modules(schemes.__path__)
    )
    return {module.METHOD: module for module in found}
