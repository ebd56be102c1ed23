"""One way of quantising weights: which tensors of a file make one of the model, and how."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

NEXT_STEP = (
    "give the model before it was quantised, or save it dequantised with the tool that made it"
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one method's tensors are turned back into numbers."""

    method: str
    """Its name in config.json."""
    bits: int
    marker: str
    """End of the name of the tensor that every quantised matrix has."""
    parts: frozenset[str]
    """Ends of the names of the others that its numbers are worked out of."""
    shape: Callable[[Mapping[str, tuple[int, ...]]], tuple[int, ...]]
    """Shape of the matrix (out, in) by the shapes of its parts."""
    restored: "Callable[[Mapping[str, torch.Tensor]], torch.Tensor]"
    """The matrix (out, in), float32, of its parts."""
    optional: frozenset[str] = frozenset()
    """Ends of the names of such as it need not have."""
    unused: frozenset[str] = frozenset()
    """Ends of names that say how activations and caches are rounded, which is not done here."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """What provenance says beside method and bits."""


def refused(path: Path, method: object, why: str) -> WeightsError:
    """An error about a quantisation that cannot be read, and what to do."""
    name = str(method)[:60]
    return WeightsError(f"{path} says that weights are quantised with {name!r}, {why}; {NEXT_STEP}")


def require(fields: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]], path: Path) -> None:
    """Refuse a field with a value that is not among those that are known."""
    for name, values in allowed.items():
        value = fields.get(name)
        if not any(value == each and type(value) is type(each) for each in values):
            known = ", ".join(str(each) for each in values if each is not None) or "none"
            method = fields.get("quant_method")
            raise refused(
                path, method, f"and {name} {str(value)[:60]!r} is not supported ({known})"
            )


def group_size(fields: Mapping[str, Any], path: Path) -> int | None:
    """Columns that share a scale, by the config; None where all do."""
    size = fields.get("group_size", fields.get("q_group_size"))
    if type(size) is not int or not (size == -1 or 0 < size <= 1 << 20):
        method = fields.get("quant_method")
        raise refused(path, method, f"and group_size {str(size)[:60]!r} is no number of columns")
    return None if size == -1 else size
