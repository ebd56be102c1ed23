"""Families of masked models: one module each in the folder `masked_families`.

A module describes its family as `FAMILY`; there is no other list. Importing the modules imports
neither torch nor vLLM.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from logitbank.engine.weights import masked_families as folder


@dataclass(frozen=True, slots=True)
class MaskedFamily:
    """Description of a family of masked models, for both engines."""

    model_type: str
    """The `model_type` of the configs whose models vLLM runs."""
    tensor_names: tuple[tuple[str, str], ...]
    """Regular expressions of names in a checkpoint, and what takes their place: `body.…` for the
    encoder, `head.…` for the head of masks. All are applied, in this order."""
    encoder: Callable[[Any, str], Any]
    """Makes vLLM's encoder of a `VllmConfig` and a prefix of names. vLLM is imported in it."""
    activation: str | None = None
    """The head's, by transformers' name; None for the config's `hidden_act`."""
    offset_positions: frozenset[str] = frozenset()
    """Model types, related ones too, whose positions count from the padding's id on, so that many
    of the embeddings are never used."""
    next_sentence: frozenset[str] = frozenset()
    """Model types, related ones too, that have a class with a next-sentence head."""
    divided_head: frozenset[str] = frozenset()
    """Model types, related ones too, whose logits at a mask need two matrices."""


@cache
def masked_families() -> MappingProxyType[str, MaskedFamily]:
    """Every family of the folder by its model type, in the order of the modules' names."""
    modules = sorted(info.name for info in pkgutil.iter_modules(folder.__path__))
    package = folder.__name__
    families = [importlib.import_module(f"{package}.{module}").FAMILY for module in modules]
    return MappingProxyType({family.model_type: family for family in families})
