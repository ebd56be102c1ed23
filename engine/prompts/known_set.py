"""A prompt set that is known by its name, and its options.

Quick to import, as are the modules that use it, because shell completion lists the names.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, Literal

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.errors import UsageError


@dataclass(frozen=True, slots=True)
class SetOption:
    """An option of a prompt set: `NAME:option=value`."""

    name: str
    default: str
    """Its default, as one would write it."""
    about: str
    read: Callable[[str], Any]
    """Parses the text after the equals sign; its ValueError names the allowed values."""

    def __str__(self) -> str:
        return f"{self.name}={self.default} ({self.about})"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSet:
    """One prompt set, or a few with one name pattern."""

    pattern: str
    """Its name; `(a|b)` stands for one of these, and `(-c)?` is optional."""
    about: str
    """One line."""
    size: str = ""
    """Number of its prompts, for people."""
    license: str = ""
    """License of its data, for people."""
    analysis: str = ""
    """The analysis of its scores: `logitbank analyze NAME`."""
    make: Callable[..., PromptSet | Iterable[PromptSet]]
    """Called with the name's text for each parenthesis, then `data` and the options."""
    options: tuple[SetOption, ...] = ()
    """Its own, in addition to `SHARED_OPTIONS`."""
    companion: str = ""
    """One of its names, which `extract` adds to each of the others."""
    prefix: str = ""
    """The beginning of its names, if others list them; `make` gets the rest, and may return several
    sets."""

    def names(self) -> list[str]:
        """Every name, spelt out; none with a prefix.

        >>> KnownSet(pattern="a-(b|c)(-d)?", about="", make=PromptSet).names()
        ['a-b', 'a-b-d', 'a-c', 'a-c-d']
        """
        if self.prefix:
            return []
        parts = re.split(r"(\([^)]*\)\??)", self.pattern)
        return ["".join(chosen) for chosen in product(*map(_choices, parts))]

    def prompts(
        self, name: str, data: Path | None, options: Mapping[str, Any]
    ) -> tuple[PromptSet, ...]:
        """The sets of this name, which is one of its names, with values of its options."""
        match = re.fullmatch(f"{self.prefix}(.+)" if self.prefix else self.pattern, name)
        assert match is not None
        made = self.make(*match.groups(), data=data, **options)
        return (made,) if isinstance(made, PromptSet) else tuple(made)


def _choices(part: str) -> Sequence[str]:
    if not part.startswith("("):
        return [part]
    choices = part.rstrip("?").strip("()").split("|")
    return ["", *choices] if part.endswith("?") else choices


def read_options(
    name: str, options: Sequence[SetOption], written: Mapping[str, str]
) -> dict[str, Any]:
    """Values of the written options of the set `name`; others keep their defaults.

    Raises
    ------
    UsageError
        An option does not exist, or its value is invalid.
    """
    by_name = {option.name: option for option in options}
    values = {}
    for key, text in written.items():
        if (option := by_name.get(key)) is None:
            close = get_close_matches(key, by_name, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            offered = "; ".join(map(str, options))
            raise UsageError(f"{name} has no option {key!r}{hint}. Options: {offered}.")
        try:
            values[key] = option.read(text)
        except ValueError as error:
            raise UsageError(f"{name}:{key}={text} is invalid: use {error}.") from None
    return values


def count_or_all(text: str) -> int | Literal["all"]:
    """A number from 1, or `all`."""
    if text == "all":
        return "all"
    if re.fullmatch(r"0*[1-9]\d{0,17}", text, re.ASCII):
        return int(text)
    raise ValueError("a number from 1, or all")


def whole_number(text: str) -> int:
    """A number from 0."""
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    raise ValueError("a number from 0")


def subset_parser(*choices: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of some of the choices, separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        parts = tuple(text.split(","))
        if not {*parts} <= {*choices}:
            raise ValueError(f"some of {', '.join(choices)}, separated by commas")
        return parts

    return read


def true_or_false(text: str) -> bool:
    """`true` or `false`."""
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


SHARED_OPTIONS = (
    SetOption(
        "add_special_tokens",
        "true",
        "false to omit the special tokens that the tokenizer puts before a text, such as <s>",
        true_or_false,
    ),
    SetOption(
        "first_token",
        "false",
        "true to score only the first token of options with several tokens",
        true_or_false,
    ),
)
"""Options of every known set and every prompt file."""
