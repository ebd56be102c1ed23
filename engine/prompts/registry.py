"""The prompt set of a name: a known set of the folder `known`, or a file.

Each module or package of that folder describes its sets as `KNOWN`; there is no other list.
"""

import importlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from logitbank.engine.prompts import known
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.known_set import SHARED_OPTIONS, KnownSet, read_options
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.errors import UsageError

_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
Prompts = str | Path | PromptSet
"""A name, a file, or a prompt set."""


@cache
def known_sets() -> tuple[KnownSet, ...]:
    """Every prompt set of the folder, in the order of its modules."""
    modules = sorted(info.name for info in pkgutil.iter_modules(known.__path__))
    return tuple(importlib.import_module(f"{known.__name__}.{module}").KNOWN for module in modules)


@cache
def _by_name() -> Mapping[str, KnownSet]:
    return {name: known_set for known_set in known_sets() for name in known_set.names()}


def _known(name: str) -> KnownSet | None:
    """The known set with this name, if there is one."""
    named = (each for each in known_sets() if each.prefix and name.startswith(each.prefix))
    return _by_name().get(name) or next(named, None)


def prompt_names() -> list[str]:
    """The names of all known prompt sets, spelt out."""
    return [*_by_name()]


def near(name: str) -> list[str]:
    """At most three known names that are spelt similarly."""
    return get_close_matches(name, prompt_names(), n=3)


def prompt_sets(
    prompts: Prompts | Sequence[Prompts], *, data: Path | None
) -> tuple[PromptSet, ...]:
    """One or several prompt sets, each a value already or a name; otherwise as `prompt_set`.

    Raises
    ------
    UsageError
        No prompt set, or two sets with the same name.
    """
    requested = [prompts] if isinstance(prompts, Prompts) else prompts
    sets = tuple(
        made
        for each in requested
        for made in ((each,) if isinstance(each, PromptSet) else _made(str(each), data))
    )
    names = [each.name for each in sets]
    if not names:
        raise UsageError("No prompts were named. Use --prompts.")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"Two prompt sets have the name {repeated[0]!r}. Rename a file.")
    return sets


def with_companions(prompts: Prompts | Sequence[Prompts]) -> list[Prompts]:
    """Prompt sets and the companions of known ones, with the same options, unless they are named.

    >>> with_companions(["winobias:orders=2", "lambada"])
    ['winobias:orders=2', 'winobias-not:orders=2', 'lambada']
    """
    requested = [prompts] if isinstance(prompts, Prompts) else [*prompts]
    names = [split_spec(str(p))[0] if isinstance(p, str | Path) else p.name for p in requested]
    whole: list[Prompts] = []
    for each, name in zip(requested, names, strict=True):
        whole.append(each)
        known_set = _known(name) if isinstance(each, str | Path) else None
        if known_set and known_set.companion not in ("", *names):
            whole.append(known_set.companion + str(each)[len(name) :])
    return whole


def prompt_set(spec: str, *, data: Path | None = None) -> PromptSet:
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
    made = _made(spec, data)
    if len(made) > 1:
        raise UsageError(f"{spec} names {len(made):,} prompt sets, and one is needed.")
    return made[0]


def _made(spec: str, data: Path | None) -> tuple[PromptSet, ...]:
    """The prompt sets that `spec` names, as for `prompt_set`."""
    name, written = split_spec(spec)
    known_set = _known(name)
    if known_set is None:
        _check_file_name(name)
    own = () if known_set is None else known_set.options
    options = read_options(name, (*own, *SHARED_OPTIONS), written)
    special = options.pop("add_special_tokens", True)
    first = options.pop("first_token", False)
    if known_set is None:
        made: tuple[PromptSet, ...] = (load_prompts(Path(name)),)
    else:
        made = known_set.prompts(name, data, options)
    if not special:
        made = tuple(replace(each, add_special_tokens=False) for each in made)
    if not first:
        return made
    if not all(each.has_options for each in made):
        raise UsageError(f"{name} scores every token. Remove first_token.")
    return tuple(replace(each, first_token=True) for each in made)


def _check_file_name(name: str) -> None:
    """Refuse a name that is neither a known set nor a file of a known kind."""
    if Path(name).suffix.lower() not in _SUFFIXES:
        hint = f" (did you mean {' or '.join(close)}?)" if (close := near(name)) else ""
        patterns = ", ".join(known_set.pattern for known_set in known_sets())
        raise UsageError(
            f"{name!r} is neither a known prompt set{hint} nor a {', '.join(_SUFFIXES)} file. "
            f"Known sets: {patterns}."
        )
    if Path(name).stem in _by_name():
        raise UsageError(f"{name}: {Path(name).stem!r} is the name of a known set. Rename it.")


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
