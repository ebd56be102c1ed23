"""A prompt: a text, and what of it is scored; validated when it is built.

Text is literal: an option is the exact continuation, leading space included. Only `[MASK]` stands
for something else: the mask token of the tokenizer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from logitbank.errors import PromptError
from logitbank.store.format.limits import (
    MAX_ID,
    MAX_SIZE,
    check_name,
    check_number,
    check_text,
    in_int64,
    shown,
)

if TYPE_CHECKING:
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.store.format.schema import Head, Query

Scalar = str | int | float | bool | None
Kind = Literal["target", "given", "sentence", "masked", "nsp"]
"""How a token is scored: as part of a target, or of a sentence, after its context; after the text
before it; under a mask. `nsp` is a class of a next-sentence head."""

MASK = "[MASK]"
"""A masked position in the text of a prompt, whatever the tokenizer calls its mask token."""

_NONE: Mapping[str, Any] = {}
"""The one mapping of all prompts without any."""
_MOVED = 40
"""Largest number of characters that a remedy moves from a text to its continuation."""


@dataclass(frozen=True, slots=True)
class Option:
    """A possible continuation of a prompt."""

    label: str
    """Name of the option in metrics."""
    text: str
    """The exact continuation that is scored."""
    optional: bool = False
    """Skip the option if it is not one token, or has the token of another option of the prompt."""


class ScoredToken(NamedTuple):
    """One scored token, or class of a next-sentence head, and where it stands."""

    query: "Query"
    token: int | None
    """Null if nothing is scored at the query."""
    text: str | None
    """The token's text, for people."""
    option: str | None = "target"
    kind: Kind | None = None
    """Null for options."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text with its scored tokens; validated when it is built."""

    id: str
    text: str
    """May contain `[MASK]`; then a mask is scored instead of the continuation."""
    options: tuple[Option, ...] = ()
    answer: str | None = None
    """Label of the correct option, if there is one."""
    order_seed: int | None = None
    """Distinguishes orders of the same options; None if they have no order."""
    columns: Mapping[str, Scalar] = field(default_factory=lambda: _NONE)
    """Metadata columns, for grouping."""
    mask: int | None = None
    """Index of the scored `[MASK]` of the text; None for the first, if there is one."""
    scored: "Way | None" = field(default=None, repr=False)
    """A function that lists the scored tokens, such as those of `engine.prompts.scoring`; by
    default those of the options."""
    parts: Mapping[str, str | None] = field(default_factory=lambda: _NONE)
    """Texts that `scored` reads, by the names in its docstring."""

    @property
    def masks(self) -> int:
        """Number of masks in the text; 0 for a prompt whose continuation is scored."""
        return self.text.count(MASK)

    def __post_init__(self) -> None:
        if isinstance(self.id, str) and not self.id.strip():
            raise PromptError(f"the prompt with the text {shown(self.text)} has no id")
        check_text(self.id, "prompt id", one_line=True, most=MAX_ID, error=PromptError)
        for text in (self.text, *(t for t in self.parts.values() if t is not None)):
            _check_text(text, self)
        _check_columns(self)
        if not self.text.strip():
            raise PromptError(f"{self} has no text")
        if self.scored is not None and self.masks:
            raise PromptError(f"{self}: sentences have no {MASK}; use a text with options")
        if self.mask is not None and not 0 <= self.mask < self.masks:
            raise PromptError(
                f"{self}: mask {self.mask} does not exist, because the text has {self.masks} {MASK}"
            )
        _check_options(self)
        if self.order_seed is not None:
            what = f"prompt {self.id!r}: its order_seed"
            check_number(self.order_seed, what, 0, MAX_SIZE, error=PromptError)

    def __str__(self) -> str:
        order = "" if self.order_seed is None else f" (order {self.order_seed})"
        return f"prompt {self.id!r}{order}"


@dataclass(slots=True)
class Encoder:
    """A tokenizer, and how the texts of a prompt set are encoded with it."""

    tokenizer: "Tokenizer"
    language: str = ""
    """Language adapter, or empty."""
    add_special_tokens: bool | None = None
    """As `PromptSet.add_special_tokens`."""
    max_length: int | None = None
    """Longest sequence of the model in tokens, if it is known."""
    truncated: int = 0
    """Prompts whose context has lost its start, which some ways of scoring count."""

    def query(
        self,
        ids: tuple[int, ...],
        position: int,
        head: "Head" = "next_token",
        segments: tuple[int, ...] = (),
    ) -> "Query":
        """The query at a position of these ids."""
        # Imported here: it brings polars and zarr (0.4 s), which shell completion does not need.
        from logitbank.store.format.schema import Query

        return Query(ids, position, head, segments, self.language)

    def contexts(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts that are continued, after the special tokens that begin a text.

        Special tokens that end a text, such as `[SEP]`, are left out, because a continuation would
        follow them. A text that begins with the same special tokens gets no second ones.
        """
        plain = self.tokenizer.encode_many(texts, add_special_tokens=False)
        return [*map(self.begun, texts, plain)]

    def begun(self, text: str, plain: list[int]) -> list[int]:
        """As `contexts`, for the ids of one text without special tokens."""
        if self.add_special_tokens is False or not self.tokenizer.opening:
            return plain
        return self.tokenizer.begun(text, plain)

    def continuations(
        self, pairs: Sequence[tuple[str, str]], before: Sequence[Sequence[int]]
    ) -> list[tuple[int, ...] | None]:
        """Ids of the second text of each pair, after the first, whose context is in `before`.

        A continuation is what text and continuation, encoded together, have beyond the text, as in
        lm-evaluation-harness (`TemplateLM._encode_pair`). None if the tokens of the first text are
        not the first tokens of both together.
        """
        both = self.contexts([first + second for first, second in pairs])
        return [
            tuple(ids[len(context) :]) if ids[: len(context)] == [*context] else None
            for ids, context in zip(both, before, strict=True)
        ]

    def overlap(self, first: str, second: str) -> str:
        """What a continuation changes in the tokens of its text, and what to move: a predicate."""
        context, both = self.contexts([first, first + second])
        same = next(
            (i for i, (a, b) in enumerate(zip(context, both, strict=False)) if a != b),
            min(len(context), len(both)),
        )
        decode = self.tokenizer.decode_each
        ends, become = decode(context[same:]), decode(both[same:])
        length = len("".join(ends))
        kept = [t for i, t in enumerate(become) if len("".join(become[:i])) < length]
        change = (
            "changes the tokens at the end of the text before it: "
            f"{', '.join(map(quote, ends))} becomes {', '.join(map(quote, kept)) or 'nothing'}"
        )
        for size in range(1, min(len(first), _MOVED)):
            head, tail = first[:-size], first[-size:]
            (own,) = self.continuations([(head, tail + second)], self.contexts([head]))
            if own and head.strip():
                return f"{change}. Move {quote(tail)} from the end of the text to its start"
        return f"{change}. Move the last word of the text to its start"


Way = Callable[[Prompt, Encoder], Iterator[ScoredToken]]
"""Lists the scored tokens of a prompt; a PromptError of it does not name the prompt."""


@cache
def reserved_columns() -> tuple[str, ...]:
    """Names that no metadata column of a prompt may have, in alphabetical order."""
    # Imported here: it brings polars (0.2 s), and shell completion imports this module.
    from logitbank.store.format.schema import RESERVED_COLUMNS

    return tuple(sorted({*RESERVED_COLUMNS, "score_kind"}))


class _Named(NamedTuple):
    """A prompt, or a part of it, in a message, which is seldom written."""

    prompt: Prompt
    part: str = ""

    def __str__(self) -> str:
        return f"{self.prompt}:{self.part}"


@cache
def _check_column(name: str) -> None:
    check_name(name, "column", error=PromptError)


def _check_text(value: object, prompt: Prompt, *, column: str | None = None) -> None:
    """`check_text` of a text of a prompt, which messages name."""
    if isinstance(value, str) and value.isascii():  # can be stored: a third of the time of a prompt
        return
    what = "" if column is None else f" column {column!r}"
    check_text(value, _Named(prompt, what), error=PromptError)


def _check_columns(prompt: Prompt) -> None:
    """Refuse column names and values that a bank cannot store."""
    if not prompt.columns.keys().isdisjoint(reserved_columns()):
        reserved = [name for name in prompt.columns if name in reserved_columns()]
        raise PromptError(
            f"{prompt}: column names that the bank reserves: {', '.join(reserved)}. Rename them. "
            f"All reserved names: {', '.join(reserved_columns())}"
        )
    for name, value in prompt.columns.items():
        _check_column(name)
        if isinstance(value, str):
            _check_text(value, prompt, column=name)
        elif isinstance(value, int) and not in_int64(value):
            raise PromptError(
                f"{prompt}: column {name!r} is {shown(value)}, which has more than 64 bits; write "
                "it as a text"
            )
        elif not isinstance(value, int | float | None):
            raise PromptError(
                f"{prompt}: column {name!r} is {shown(value)}; use a text, a number or true/false"
            )


KINDS: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
"""Kinds of values; a column has values of one kind."""


def _check_options(prompt: Prompt) -> None:
    labels = [option.label for option in prompt.options]
    for option in prompt.options:
        for part in (option.label, option.text):
            _check_text(part, prompt)
        if not option.label.strip() or not option.text:
            raise PromptError(
                f"{prompt}: option {option.label!r} ({quote(option.text)}) needs a non-empty label "
                "and continuation"
            )
    if len({*labels}) < len(labels):
        repeated = next(label for label in labels if labels.count(label) > 1)
        raise PromptError(f"{prompt}: option {repeated!r} is repeated")
    if prompt.answer is not None and prompt.answer not in labels:
        listed = ", ".join(map(repr, labels)) or "none"
        raise PromptError(f"{prompt}: answer {prompt.answer!r} is not an option; options: {listed}")


def quote(text: str) -> str:
    """A text in double quotes, on one line, for messages."""
    return '"' + repr(text)[1:-1] + '"'


def masked_text(text: str, mask_token: str | None) -> str:
    """A text with the tokenizer's mask token for every `[MASK]`; unchanged without one."""
    return text if mask_token is None else text.replace(MASK, mask_token)
