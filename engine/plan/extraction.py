"""What an extraction is asked to do, and what it is once everything about it is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.plan import (
    Placement,
    Plan,
)
from logitbank.engine.plan.throughput import Throughput
from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.suites.hub import HubSource
from logitbank.engine.suites.suites import LocalSource, Suite
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.heads import HeadSize
from logitbank.errors import (
    SuiteError,
    UsageError,
)
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import Dtype, Head, Keep


@dataclass(frozen=True, slots=True)
class Extraction:
    """Everything that defines one extraction, checked when built."""

    suite: Suite
    prompt_sets: tuple[PromptSet | SequenceSet, ...]
    settings: EngineSettings
    engine_auto: bool = False
    """Another engine than the settings' may be taken where that has no class for the model."""
    adapters: LocalSource | HubSource | None = None
    """Where language adapters that the suite lacks are from; the folder is in the settings."""
    keep: Keep = Keep("full")  # noqa: RUF009 (frozen)
    dtype: Dtype = "float16"
    keep_auto: bool = False
    """Another level may be taken that keeps as much: the one that takes least of the disk."""
    block_rows: int | None = None
    parallel: ParallelConfig = ParallelConfig()  # noqa: RUF009 (frozen)
    about: Mapping[str, str] = field(default_factory=dict)
    """Title, licence and citation of a new bank."""
    disk_budget: int | None = None
    """Most bytes of downloads at a time."""

    def __post_init__(self) -> None:
        if not self.suite.checkpoints:
            raise SuiteError(f"suite {self.suite.name!r} has no checkpoints")
        if not self.prompt_sets:
            raise UsageError("no prompt set was given; name one with --prompts")
        names = [prompts.name for prompts in self.prompt_sets]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"two prompt sets are called {twice[0]!r}; rename a file")


class Requested(NamedTuple):
    """The queries that were asked for, and what else decides which blocks they are."""

    placement: Placement
    query_sets: Mapping[str, QuerySet]
    """Those of the bank, and new ones."""
    config: ModelConfig
    pace: Throughput
    """About how fast the engine is."""
    heads: Mapping[Head, HeadSize]
    """Output heads of the first checkpoint."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with what running it needs."""

    plan: Plan
    requested: Requested
    tables: tuple[tuple[str, pl.DataFrame], ...]
    """Each prompt set's name and its table, which points at queries as the bank will have them."""
    tokenizer: Tokenizer
    first: Path
    """Folder of the checkpoint that tokenizer and config are from."""
    settings: EngineSettings
    """Settings of the extraction, with what the prompts and the model decide."""
    adapters: LocalSource | HubSource | None
    """Where borrowed language adapters are from."""
    notes: tuple[str, ...]
    """What the user should know, one line each."""
    keep: Keep
    dtype: Dtype
    """What is kept of a row, which the extraction may have left open."""
    special_tokens: Mapping[str, str]
    """The special tokens before the first text of each prompt set, for provenance."""
