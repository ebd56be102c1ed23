"""All analyses of the prompt sets of banks."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.families import families
from logitbank.analysis.family import Family
from logitbank.analysis.frames.banks import Banks, PromptColumns, open_banks, prompt_sets
from logitbank.analysis.frames.reader import ScanCache
from logitbank.analysis.study import Study
from logitbank.errors import LogitbankError
from logitbank.store import Bank
from logitbank.store.format.schema import folder_name

FAILURES = (LogitbankError, pl.exceptions.PolarsError)
"""Errors of an analysis that refuses its prompts, or whose bank is damaged."""


class Analysis(NamedTuple):
    """An analysis of prompt sets; `run()` returns its study."""

    family: Family
    title: str
    prompts: tuple[str, ...]
    folder: str
    """Name of a folder for its results and of its section on a page, which no other has."""
    run: Callable[[], Study[Any]]


def analyses(
    banks: Banks,
    *,
    prompts: Collection[str] | None = None,
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
) -> list[Analysis]:
    """The analyses of banks in the order of a report, sharing one cache.

    A family chooses its prompt sets; those that no family chooses are analysed by `options`.

    Raises
    ------
    UsageError
        No bank has one of `prompts`.
    """
    opened = open_banks(banks, models=models, prompts=None if prompts is None else [*prompts])
    names = prompt_sets(opened, prompts)
    columns = PromptColumns(opened, names)
    settings = {
        "models": models, "bootstrap": bootstrap, "cache": ScanCache(),
        "entropy": False,  # full rows are as large as the bank
    }  # fmt: skip
    options = families()["options"]
    chosen = [
        (family, prompts) for family in families().values() for prompts in family.prompts(columns)
    ]
    known = {name for _, prompts in chosen for name in prompts}
    chosen += [(options, (name,)) for name in sorted(set(names) - known)]
    number = Counter(family.name for family, _ in chosen)
    return [
        _analysis(family, opened, prompts, several=number[family.name] > 1, **settings)
        for family, prompts in chosen
    ]


def _analysis(
    family: Family, banks: Sequence[Bank], names: tuple[str, ...], *, several: bool, **settings: Any
) -> Analysis:
    """An analysis. If its family has several, its title and its folder name its prompts.

    Its function gets those of the settings that it has.
    """
    settings = {name: value for name, value in settings.items() if name in family.parameters}
    title, folder = family.title, family.name
    if family.name == "options":
        title += f" of {names[0]}"
    elif several:
        title += f": {', '.join(names)}"
    if several:
        folder = folder_name("-".join((folder, *names)))
    prompts = names if family.several_prompts else names[0]
    run = partial(family.analyze, banks, prompts=prompts, **settings)
    return Analysis(family, title, names, folder, run)


def failure_message(error: Exception) -> str:
    """One of `FAILURES` as a sentence; Polars's own errors are about tables that are damaged."""
    if isinstance(error, LogitbankError):
        return str(error)
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"A table cannot be read ({first}). Run `logitbank verify` on the bank."
