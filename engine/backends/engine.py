"""An engine as the rest of the product sees it, and all engines, found by listing their folders.

A folder of `engine/backends` is an engine: its `__init__` has an `ENGINE` and is quick to import.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from logitbank.engine import backends
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.engine.backends.contexts import LeafContext
    from logitbank.engine.backends.gpus import Card
    from logitbank.engine.backends.protocol import (
        Backend,
        ComputeDtype,
        EngineSettings,
        EngineStart,
        Task,
    )
    from logitbank.engine.weights.config import ModelConfig


class Use(NamedTuple):
    """A model, and what prompts need of it."""

    config: "ModelConfig"
    task: "Task"
    compute_dtype: "ComputeDtype" = "float32"
    next_sentence: bool = False
    """Whether a next-sentence head is used."""
    head_bias: bool = False
    """Whether the LM head has a bias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine. A problem is a text without a full stop, empty if nothing is known."""

    name: str
    """The name that users write."""
    order: int
    """`auto` takes the first installed engine that runs the model."""
    packages: tuple[str, ...]
    """Packages that have to be installed."""
    install: str
    """How to install them."""
    fallback: str = ""
    """Engine that messages advise if this one fails."""
    open: "Callable[[Task], Callable[[Path, EngineSettings], Backend]]"
    """Import the class for a task, which takes seconds."""
    environment: "Callable[[EngineStart], Mapping[str, str]]"
    """Variables of its process, to be set before anything is imported."""
    check_memory: "Callable[[EngineSettings, Path, ModelConfig], None]"
    """Raise DeviceError if a model does not fit into `gpu_memory`; the folder has its weights."""
    positions: "Callable[[Sequence[LeafContext], ModelConfig, int, bool], int | None]"
    """Token positions that it runs for contexts of a causal model, with batches of so many tokens,
    on a GPU or not; None if unknown."""
    start_problem: "Callable[[EngineStart, Mapping[str, str]], str]" = lambda *_: ""
    """Why it cannot start like this on a machine with these variables."""
    machine_problem: "Callable[[Mapping[str, str]], str]" = lambda _: ""
    """Why it would fail on the GPUs of this machine."""
    model_problem: "Callable[[Use, Sequence[Card]], str]" = lambda *_: ""
    """Why it would fail on a model or give other logits, on any machine or on one of these GPUs."""

    @property
    def is_installed(self) -> bool:
        return all(importlib.util.find_spec(package) is not None for package in self.packages)

    @property
    def advice(self) -> str:
        """The next step after a problem of this engine; empty if there is none."""
        return f"--engine {self.fallback}" if self.fallback else ""


@cache
def engines() -> tuple[Engine, ...]:
    """All engines, in the order of `auto`."""
    modules = pkgutil.iter_modules(backends.__path__)
    folders = sorted(module.name for module in modules if module.ispkg)
    listed = [importlib.import_module(f"{backends.__name__}.{each}").ENGINE for each in folders]
    return tuple(sorted(listed, key=lambda engine: engine.order))


def engine_names() -> list[str]:
    """Names of all engines, in the order of `auto`."""
    return [engine.name for engine in engines()]


def engine_named(name: str) -> Engine:
    """The engine of this name.

    Raises
    ------
    UsageError
        No engine has it.
    """
    for engine in engines():
        if engine.name == name:
            return engine
    raise UsageError(f"--engine {name!r} is invalid: use auto, {', '.join(engine_names())}.")
