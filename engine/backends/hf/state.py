"""What a forward pass leaves behind in a model.

Some models remember: BigBird keeps the attention of the last short sequence, dynamic rotary
embeddings the frequencies of the longest one, and RWKV divides weights in its first pass. A model
that was just read is the reference for every sequence.
"""

from operator import is_
from typing import Any

import torch

from logitbank.engine.weights.proof import Fingerprint, fingerprint

_Content = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Keys and values of a dictionary; of a list or set its elements twice."""
_OF_MODULES = frozenset(
    vars(torch.nn.Module()).keys()
    - {"_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"}
)
"""Attributes of every module that no pass changes: hooks of trainings and of state dicts."""


class ModelState:
    """The attributes of a model and of all that belongs to it, and which tensors were written."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._containers: list[tuple[Any, _Content]] = []
        self._empty: list[Any] = []
        self._tensors: list[torch.Tensor] = []
        seen = set[int]()
        left: list[Any] = [model]
        while left:
            value = left.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, torch.Tensor):
                if not value.is_inference():
                    self._tensors.append(value)
            elif isinstance(value, dict | list | set):
                keys, values = _content(value)
                if keys:
                    self._containers.append((value, (keys, values)))
                else:
                    self._empty.append(value)
                for key, each in zip(keys, values, strict=True):
                    if not isinstance(key, str) or key not in _OF_MODULES:
                        left.append(each)
            elif isinstance(value, tuple | frozenset):
                left += value
            elif _has_state(value):
                left.append(vars(value))
        self._versions: list[int] = []
        self.settle()

    def settle(self) -> None:
        """Accept the contents of all tensors, such as another checkpoint's weights."""
        self._versions = [tensor._version for tensor in self._tensors]

    @property
    def is_written(self) -> bool:
        """Whether a tensor was written since `settle`. PyTorch does not count writes to `.data`."""
        return self._versions != [tensor._version for tensor in self._tensors]

    def marks(self) -> list[Fingerprint]:
        """Fingerprints of all tensors, which also show writes to `.data`."""
        return [fingerprint(tensor) for tensor in self._tensors]

    def restore(self) -> None:
        """Give every attribute, sub-module and buffer back its value; contents of tensors stay."""
        if any(self._empty):
            for container in self._empty:
                container.clear()
        for container, (keys, values) in self._containers:
            if not _is_same(container, keys, values):
                container.clear()
                if isinstance(container, dict):
                    container.update(zip(keys, values, strict=True))
                elif isinstance(container, list):
                    container.extend(values)
                else:
                    container.update(values)


def _content(container: Any) -> _Content:
    if isinstance(container, dict):
        return tuple(container), tuple(container.values())
    return tuple(container), tuple(container)


def _is_same(container: Any, keys: tuple[Any, ...], values: tuple[Any, ...]) -> bool:
    if len(container) != len(keys):
        return False
    if isinstance(container, dict):
        return all(map(is_, container, keys)) and all(map(is_, container.values(), values))
    return all(map(is_, container, values))


def _has_state(value: Any) -> bool:
    """Whether a value is an object of a model's code, such as a module or a config."""
    if isinstance(value, torch.nn.Module):
        return True
    kind = type(value)
    return kind.__module__.startswith("transformers") and hasattr(value, "__dict__")
