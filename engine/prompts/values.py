"""A prompt with its options and its answer, validated when it is built.

Text is literal: an option is the exact continuation, leading space included. Only `[MASK]` stands
for something else: the mask token of the tokenizer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

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

Scalar = str | int | float | bool | None

MASK = "[MASK]"
"""A masked position in the text of a prompt, whatever the tokenizer calls its mask token."""


@dataclass(frozen=True, slots=True)
class Option:
    """A possible continuation of a prompt."""

    label: str
    """Name of the option in metrics."""
    text: str
    """The exact continuation that is scored."""
    optional: bool = False
    """Skip the option if it is not one token, or has the token of another option of the prompt."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text whose continuation, or one of whose masks, is scored; validated when it is built."""

    id: str
    text: str
    """May contain `[MASK]`; then a mask is scored instead of the continuation."""
    options: tuple[Option, ...] = ()
    answer: str | None = None
    """Label of the correct option, if there is one."""
    order_seed: int | None = None
    """Distinguishes orders of the same options; None if they have no order."""
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    """Metadata columns, for grouping."""
    mask: int | None = None
    """Index of the scored `[MASK]` of the text; None for the first, if there is one."""

    @property
    def masks(self) -> int:
        """Number of masks in the text; 0 for a prompt whose continuation is scored."""
        return self.text.count(MASK)

    def __post_init__(self) -> None:
        check_id(self.id, self.text)
        texts = [part for option in self.options for part in (option.label, option.text)]
        check_contents([self.text, *texts], self.columns, str(self))
        if not self.text.strip():
            raise PromptError(f"{self} has no text")
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


@cache
def reserved_columns() -> tuple[str, ...]:
    """Names that no metadata column of a prompt may have, in alphabetical order."""
    # Imported here: it brings polars (0.2 s), and shell completion imports this module.
    from logitbank.store.format.schema import RESERVED_COLUMNS

    return tuple(sorted({*RESERVED_COLUMNS, "score_kind"}))


@cache
def _check_column(name: str) -> None:
    check_name(name, "column", error=PromptError)


def check_id(name: str, text: str) -> None:
    """Refuse a prompt id that is blank, has control characters or is too long."""
    if isinstance(name, str) and not name.strip():
        raise PromptError(f"the prompt with the text {shown(text)} has no id")
    check_text(name, "prompt id", one_line=True, most=MAX_ID, error=PromptError)


def check_contents(texts: Sequence[str], columns: Mapping[str, Scalar], prompt: str) -> None:
    """Refuse texts, column names and column values that a bank cannot store.

    Messages call the prompt `prompt`.
    """
    for text in texts:
        check_text(text, f"{prompt}:", error=PromptError)
    if reserved := [name for name in columns if name in reserved_columns()]:
        raise PromptError(
            f"{prompt}: column names that the bank reserves: {', '.join(reserved)}. Rename them. "
            f"All reserved names: {', '.join(reserved_columns())}"
        )
    for name, value in columns.items():
        _check_column(name)
        if isinstance(value, str):
            check_text(value, f"{prompt}: column {name!r}", error=PromptError)
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
