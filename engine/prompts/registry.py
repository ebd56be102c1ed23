"""The prompt set of a name: a known set of the folder `known`, or a file.

Each module or package of that folder describes its sets as `KNOWN`; there is no other list.
"""

import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from logitbank.engine.prompts import known
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.known_set import (
    ADD_SPECIAL_TOKENS,
    FIRST_TOKEN,
    KnownSet,
    SetOption,
    read_options,
    true_or_false,
)
from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.errors import UsageError

_SUFFIXES = (".jsonl", ".csv", ".parquet")
FILE_OPTIONS = (
    FIRST_TOKEN,
    SetOption(
        "separate_options",
        "false",
        "true to encode an option separately from its text",
        true_or_false,
    ),
    ADD_SPECIAL_TOKENS,
    SetOption("few_shot", "", "a text file that is put before every text", str),
)
"""Options of a prompt file."""


Prompts = str | Path | PromptSet | SequenceSet
"""A name, a file, or a prompt set."""


@cache
def known_sets() -> tuple[KnownSet, ...]:
    """Every prompt set of the folder, in the order of its modules."""
    modules = sorted(info.name for info in pkgutil.iter_modules(known.__path__))
    return tuple(importlib.import_module(f"{known.__name__}.{module}").KNOWN for module in modules)


@cache
def _by_name() -> Mapping[str, KnownSet]:
    return {name: known_set for known_set in known_sets() for name in known_set.names()}


def prompt_names() -> list[str]:
    """The names of all known prompt sets, spelt out."""
    return [*_by_name()]


def near(name: str) -> list[str]:
    """At most three known names that are spelt similarly."""
    return get_close_matches(name, prompt_names(), n=3)


def prompt_sets(
    prompts: Prompts | Sequence[Prompts], *, data: Path | None
) -> tuple[PromptSet | SequenceSet, ...]:
    """One or several prompt sets, each a value already or a name; otherwise as `prompt_set`.

    Raises
    ------
    UsageError
        No prompt set, or two sets with the same name.
    """
    requested = [prompts] if isinstance(prompts, Prompts) else prompts
    sets = tuple(
        prompt_set(str(each), data=data) if isinstance(each, str | Path) else each
        for each in requested
    )
    names = [each.name for each in sets]
    if not names:
        raise UsageError("No prompts were named. Use --prompts.")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"Two prompt sets have the name {repeated[0]!r}. Rename a file.")
    return sets


def prompt_set(spec: str, *, data: Path | None = None) -> PromptSet | SequenceSet:
    """The prompt set that `spec` names.

    Parameters
    ----------
    spec
        Name of a known set, or path of a prompt file; after it `:option=value`, several options
        separated by commas: `winobias:orders=all,splits=dev`.
    data
        Folder with public data; by default `LOGITBANK_DATA`, or a download.

    Raises
    ------
    UsageError
        `spec` is neither a known set nor a file of a known kind, or one of its options does not
        exist or has an invalid value.
    """
    name, written = split_spec(spec)
    if known_set := _by_name().get(name):
        return known_set.prompts(name, written, data=data)
    if Path(name).suffix.lower() in _SUFFIXES:
        if Path(name).stem in _by_name():
            raise UsageError(f"{name}: {Path(name).stem!r} is the name of a known set. Rename it.")
        options = read_options(name, FILE_OPTIONS, written)
        if not options.get("few_shot", "none"):
            raise UsageError(f"{name}: few_shot names no file. Use few_shot=FILE.")
        return load_prompts(Path(name), **options)
    hint = f" (did you mean {' or '.join(close)}?)" if (close := near(name)) else ""
    patterns = ", ".join(known_set.pattern for known_set in known_sets())
    raise UsageError(
        f"{name!r} is neither a known prompt set{hint} nor a {', '.join(_SUFFIXES)} file. Known "
        f"sets: {patterns}."
    )


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """A name, and the options written after it; a value may hold commas.

    >>> split_spec("winobias:orders=2,splits=dev,test")
    ('winobias', {'orders': '2', 'splits': 'dev,test'})
    """
    match = re.fullmatch(r"(.+):(\w+=.*)", spec, re.DOTALL)
    if match is None or Path(spec).is_file():
        return spec, {}
    written: dict[str, str] = {}
    for part in re.split(r",(?=\w+=)", match[2]):
        key, _, value = part.partition("=")
        if key in written:
            raise UsageError(f"{spec}: option {key!r} is repeated.")
        written[key] = value
    return match[1], written
