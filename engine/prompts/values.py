"""A prompt with its options and its answer, as a value that is checked when it is built.

Text is literal throughout: an option is the exact continuation, leading space included. Only
`[MASK]` stands for something else: the mask token of whatever tokenizer meets it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple

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
from logitbank.wording import counted

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
def reserved_columns() -> tuple[str, ...]:
    """Names that no further column of a prompt may have, in alphabetical order."""
    # Imported here: it brings polars (0.2 s), and a shell that completes the names of prompt sets
    # imports this module.
    from logitbank.store.format.schema import RESERVED_COLUMNS

    return tuple(sorted({*RESERVED_COLUMNS, "score_kind"}))


@cache
def _check_column(name: str) -> None:
    check_name(name, "column", error=PromptError)


def check_id(name: str, text: str) -> None:
    """Refuse a prompt id that is blank, has control characters or is too long."""
    if isinstance(name, str) and not name.strip():
        raise PromptError(f"a prompt has no id (text {shown(text)}); give every prompt one")
    check_text(name, "prompt id", one_line=True, most=MAX_ID, error=PromptError)


def check_contents(texts: Sequence[str], columns: Mapping[str, Scalar], prompt: str) -> None:
    """Refuse texts, column names and column values that a bank cannot keep.

    `prompt` names the prompt in messages.
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
        if name in reserved_columns():
            raise PromptError(
                f'{prompt}: column name "{name}" is reserved. Rename it. '
                f"Reserved: {', '.join(reserved_columns())}"
            )


class Mixed(NamedTuple):
    """A column with values of two kinds, such as texts and numbers."""

    name: str
    first: int
    """Index of the prompt with the first value."""
    other: int
    """Index of the first prompt whose value is of another kind."""
    kinds: tuple[str, str]

    def message(self, first: str) -> str:
        """The error about the other prompt, where `first` names the first one."""
        return (
            f"column {self.name!r} holds {self.kinds[1]} here and {self.kinds[0]} in {first}; "
            "use one kind"
        )


def mixed_columns(columns: Iterable[Mapping[str, Scalar]]) -> Iterator[Mixed]:
    """Each column with values of two kinds, once. Integers and fractions are of one kind."""
    seen: dict[str, tuple[int, str]] = {}
    reported: set[str] = set()
    for number, values in enumerate(columns):
        for name, value in values.items():
            if value is None or name in reported:
                continue
            kind = _KINDS[type(value)]
            first, before = seen.setdefault(name, (number, kind))
            if kind != before:
                reported.add(name)
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


class Finding(NamedTuple):
    """An error that stops a prompt set, or a warning about a likely mistake of its author."""

    level: Literal["error", "warning"]
    kind: str
    """Findings of one kind are reported once."""
    prompt_id: str
    message: str


def once_per_kind(findings: Iterable[Finding]) -> list[Finding]:
    """The first finding of each kind, with the number of other prompts that have it."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.level, finding.kind), []).append(finding)
    return [
        first._replace(message=f"{first.message} (and {counted(len(others), 'other prompt')})")
        if others
        else first
        for first, *others in kinds.values()
    ]


_LISTED = 20
"""Number of errors that one message lists."""


def one_error(what: str, errors: Sequence[str]) -> PromptError:
    """One error as it is; several as a list, one on each line."""
    if len(errors) == 1:
        return PromptError(errors[0])
    first = f", the first {_LISTED}:" if len(errors) > _LISTED else ":"
    lines = [f"{what} has {len(errors):,} errors{first}", *(f"  {e}" for e in errors[:_LISTED])]
    return PromptError("\n".join(lines))


def quote(text: str) -> str:
    """A text in double quotes, on one line, for messages."""
    return '"' + repr(text)[1:-1] + '"'


def masked_text(text: str, mask_token: str | None) -> str:
    """A text with a tokenizer's mask token for every `[MASK]`; unchanged where it has none."""
    return text if mask_token is None else text.replace(MASK, mask_token)
