"""A prompt with its options and its answer, as a value that is checked when it is built.

Text is literal throughout: an option is the exact continuation, leading space included. Only
`[MASK]` stands for something else: the mask token of whatever tokenizer meets it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

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
"""A masked position in a prompt's text, whatever the model calls its mask token."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that may follow a prompt."""

    label: str
    """What metrics call it."""
    text: str
    """The exact continuation that is scored."""
    optional: bool = False
    """Left out where it is not one token, or that of another option of the prompt."""


class Turn(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text whose continuation, or one of whose masks, is scored; checked when it is built."""

    id: str
    text: str
    """May hold `[MASK]`; then a mask is scored instead of the continuation."""
    options: tuple[Option, ...] = ()
    answer: str | None = None
    """Label of the right option, where there is one."""
    order_seed: int | None = None
    """Tells orders of the same options apart; None where they have no order."""
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    """Further columns, kept for grouping."""
    mask: int | None = None
    """Which `[MASK]` of the text is scored, counted from 0; None for the first, if there is any."""
    messages: tuple[Turn, ...] = ()
    """A conversation in place of a text: the tokenizer's chat template makes the text of it, up to
    where the assistant's answer begins."""

    @property
    def masks(self) -> int:
        """Number of masks in the text; 0 for a prompt whose continuation is scored."""
        return self.text.count(MASK)

    def __post_init__(self) -> None:
        check_id(self.id, self.text)
        texts = [self.text, *(part for turn in self.messages for part in turn)]
        texts += [part for option in self.options for part in (option.label, option.text)]
        check_contents(texts, self.columns, str(self))
        if not self.text.strip() and not self.messages:
            raise PromptError(f"{self} has no text; remove it or give it one")
        if self.mask is not None and not 0 <= self.mask < self.masks:
            masks = f"has {self.masks} ({MASK})" if self.masks else f"has no {MASK}"
            raise PromptError(f"{self}: mask {self.mask} is to be scored, but its text {masks}")
        _check_options(self)
        if self.order_seed is not None:
            what = f"prompt {self.id!r}: its order_seed"
            check_number(self.order_seed, what, 0, MAX_SIZE, error=PromptError)

    def __str__(self) -> str:
        order = "" if self.order_seed is None else f" (order {self.order_seed})"
        return f"prompt {self.id!r}{order}"


@cache
def _reserved_columns() -> frozenset[str]:
    # Imported when first asked: it brings polars (0.2 s), and a shell that completes the names of
    # prompt sets imports this module.
    from logitbank.store.format.schema import RESERVED_COLUMNS

    return RESERVED_COLUMNS


@cache
def _check_column(name: str) -> None:
    check_name(name, "column", error=PromptError)


def check_id(name: str, text: str) -> None:
    """Refuse what is no id of a prompt, which this text tells from others.

    Raises
    ------
    PromptError
        It is blank, has control characters, or is too long.
    """
    if isinstance(name, str) and not name.strip():
        raise PromptError(f"a prompt has no id (text {shown(text)}); give every prompt one")
    check_text(name, "prompt id", one_line=True, most=MAX_ID, error=PromptError)


def check_contents(texts: Sequence[str], columns: Mapping[str, Scalar], prompt: str) -> None:
    """Refuse what a bank cannot keep: texts that are no Unicode, numbers that no column holds, and
    columns named as its own.

    `prompt` is what messages call it.

    Raises
    ------
    PromptError
        One of them is so.
    """
    for text in texts:
        check_text(text, f"{prompt}:", error=PromptError)
    for name, value in columns.items():
        _check_column(name)
        if isinstance(value, str):
            check_text(value, f"{prompt}: column {name!r}", error=PromptError)
        elif isinstance(value, int) and not in_int64(value):
            raise PromptError(
                f"{prompt}: column {name!r} is {shown(value)}, more than 64 bits; make it a text"
            )
        elif not isinstance(value, int | float | None):
            raise PromptError(
                f"{prompt}: column {name!r} is {shown(value)}; use a text, a number or true/false"
            )
    if reserved := sorted(_reserved_columns() & set(columns)):
        raise PromptError(f"{prompt}: column {reserved[0]!r} is one of the bank's own; rename it")


class Mixed(NamedTuple):
    """A column with values of kinds that no one column holds, such as texts and numbers."""

    name: str
    first: int
    """Number of the prompt, from 0, whose value is the first."""
    other: int
    """That of the first one whose value is of another kind."""
    kinds: tuple[str, str]

    def message(self, first: str) -> str:
        """What to say of the other one, where `first` names the first one."""
        return (
            f"column {self.name!r} holds {self.kinds[1]} here and {self.kinds[0]} in {first}; "
            "use one kind"
        )


def mixed_columns(columns: Iterable[Mapping[str, Scalar]]) -> Iterator[Mixed]:
    """Each column that is mixed, once. Whole numbers and fractions are of one kind."""
    seen: dict[str, tuple[int, str]] = {}
    told: set[str] = set()
    for number, of_prompt in enumerate(columns):
        for name, value in of_prompt.items():
            if value is None or name in told:
                continue
            kind = _KINDS[type(value)]
            first, before = seen.setdefault(name, (number, kind))
            if kind != before:
                told.add(name)
                yield Mixed(name, first, number, (before, kind))


_KINDS = {str: "a text", bool: "true or false", int: "a number", float: "a number"}


def _check_options(prompt: Prompt) -> None:
    labels = [option.label for option in prompt.options]
    for option in prompt.options:
        if not option.label.strip() or not option.text:
            raise PromptError(
                f"{prompt}: option {option.label!r} ({quote(option.text)}) needs a label "
                "and a continuation that are not empty"
            )
        if labels.count(option.label) > 1:
            raise PromptError(f"{prompt}: option {option.label!r} is there twice; rename one")
    if prompt.answer is None or prompt.answer in labels:
        return
    if not labels:
        raise PromptError(f"{prompt} has the answer {prompt.answer!r} but no options; list them")
    raise PromptError(
        f"{prompt}: answer {prompt.answer!r} is not among the options "
        f"{', '.join(map(repr, labels))}"
    )


_TOLD = 20
"""Errors that are listed; of more, the number."""


def one_error(what: str, errors: Sequence[PromptError]) -> PromptError:
    """One error as it is; several as a list, a line each."""
    if len(errors) == 1:
        return errors[0]
    first = f"{what} has {len(errors):,} errors"
    first += f", the first {_TOLD}:" if len(errors) > _TOLD else ":"
    return PromptError("\n".join([first, *(f"  {error}" for error in errors[:_TOLD])]))


def quote(text: str) -> str:
    """A text in double quotes, on one line, for messages."""
    return '"' + repr(text)[1:-1] + '"'


def masked_text(text: str, mask_token: str | None) -> str:
    """A text with a tokenizer's mask token for every `[MASK]`; unchanged where it has none."""
    return text if mask_token is None else text.replace(MASK, mask_token)
