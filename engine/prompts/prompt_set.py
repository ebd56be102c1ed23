"""Prompts under one name: with one query each, or with many."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logitbank.engine.prompts.sequences import NextSentence, SequencePrompt
from logitbank.engine.prompts.values import Prompt
from logitbank.errors import PromptError
from logitbank.store.format.limits import check_name

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts that are stored and analysed under one name."""

    name: str
    prompts: tuple[Prompt, ...]
    add_special_tokens: bool | None = None
    """Whether special tokens are put around each text; None leaves it to the tokenizer. None of
    those that end a text stands before an option."""
    first_token: bool = False
    """Whether an option of several tokens is represented by its first."""
    whole_options: bool = False
    """Whether an option of several tokens is scored by all of them, each after those before it.
    `first_token` takes precedence. An option under a mask is one token."""
    drop_split: bool = False
    """Whether a prompt is skipped if an option that is not optional is not one token."""
    language: str = ""
    """Language adapter for its texts, for models with adapters; otherwise empty."""

    @property
    def next_sentence(self) -> bool:
        """Whether the set needs a model with a next-sentence head: never."""
        return False

    def __post_init__(self) -> None:
        _check(self.name, ((str(p), (p.id, p.order_seed)) for p in self.prompts))

    def content(self) -> "pl.DataFrame":
        """Prompts, orders and options before any tokenizer skips some, as columns `CONTENT`."""
        none: list[str | None] = [None]
        labels = ((p, [option.label for option in p.options] or none) for p in self.prompts)
        return _content((p.id, p.order_seed, label) for p, own in labels for label in own)


@dataclass(frozen=True, slots=True)
class SequenceSet:
    """Prompts with many queries that are stored and analysed under one name."""

    name: str
    prompts: tuple[SequencePrompt, ...]
    language: str = ""
    add_special_tokens: bool | None = None
    """Whether special tokens are put around each text; None leaves it to the tokenizer."""

    @property
    def next_sentence(self) -> bool:
        """Whether the set needs a model with a next-sentence head."""
        return isinstance(self.prompts[0], NextSentence)

    def __post_init__(self) -> None:
        _check(self.name, ((f"prompt {p.id!r}", p.id) for p in self.prompts))
        if len({isinstance(prompt, NextSentence) for prompt in self.prompts}) > 1:
            raise PromptError(
                f"prompt set {self.name!r} has prompts for a next-sentence head and others; split "
                "it into two sets"
            )

    def content(self) -> "pl.DataFrame":
        """Prompts before any tokenizer skips some; options follow from their kind."""
        return _content((p.id, None, None) for p in self.prompts).drop("option")


def _content(rows: "Iterable[tuple[str, int | None, str | None]]") -> "pl.DataFrame":
    import polars as pl

    from logitbank.store.format.schema import PROMPTS_SCHEMA
    from logitbank.store.tables.prompt_tables import CONTENT

    schema = {name: PROMPTS_SCHEMA[name] for name in CONTENT}
    return pl.DataFrame([*rows], schema=schema, orient="row")


def _check(name: str, prompts: Iterable[tuple[str, Hashable]]) -> None:
    """Refuse a set without a name or without prompts, or with one prompt twice."""
    check_name(name, "prompt set", error=PromptError)
    seen: set[Hashable] = set()
    for prompt, key in prompts:
        if key in seen:
            raise PromptError(f"{prompt} is repeated; give each prompt its own id")
        seen.add(key)
    if not seen:
        raise PromptError(f"prompt set {name!r} is empty")
