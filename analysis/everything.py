"""All analyses of the prompt sets of banks."""

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.family import Family, families
from logitbank.analysis.frames.banks import Banks, PromptColumns, no_prompts, open_banks
from logitbank.analysis.frames.scan_cache import ScanCache
from logitbank.analysis.study import Study
from logitbank.errors import LogitbankError, UsageError
from logitbank.store import Bank

FAILURES = (LogitbankError, pl.exceptions.PolarsError)
"""What an analysis raises if it refuses its prompts, or a bank is damaged."""


class Analysis(NamedTuple):
    """An analysis of prompt sets; `run()` returns its study."""

    family: Family
    title: str
    prompts: tuple[str, ...]
    run: Callable[[], Study[Any]]


def analyses(
    banks: Banks,
    *,
    prompts: Collection[str] | None = None,
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
    cache: ScanCache | None = None,
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
    return planned(opened, names, models=models, bootstrap=bootstrap, cache=cache or ScanCache())


def prompt_sets(banks: Sequence[Bank], requested: Collection[str] | None) -> list[str]:
    """The names of the prompt sets of banks, or the requested ones among them, sorted.

    Raises
    ------
    UsageError
        No bank has a requested one.
    """
    available = sorted({name for bank in banks for name in bank.prompt_sets})
    for name in requested or ():
        if name not in available:
            raise UsageError(no_prompts(banks, name))
    return [name for name in available if requested is None or name in requested]


def planned(
    banks: Sequence[Bank],
    names: Collection[str],
    *,
    models: Sequence[str] | None,
    bootstrap: int,
    cache: ScanCache,
) -> list[Analysis]:
    """`analyses` of open banks and of prompt sets in them."""
    columns = PromptColumns(banks, names)
    settings = {"models": models, "bootstrap": bootstrap, "cache": cache}
    plans = [
        _analysis(family, banks, chosen, title=family.title, **settings)
        for family in families().values()
        for chosen in family.prompts(columns)
    ]
    known = {name for plan in plans for name in plan.prompts}
    family = families()["options"]
    return plans + [
        _analysis(family, banks, (name,), title=f"{family.title} of {name}", **settings)
        for name in sorted(set(names) - known)
    ]


def _analysis(
    family: Family, banks: Sequence[Bank], names: tuple[str, ...], *, title: str, **settings: Any
) -> Analysis:
    if "bootstrap" not in inspect.signature(family.analyze).parameters:
        settings.pop("bootstrap", None)
    prompts = names if family.several_prompts else names[0]
    return Analysis(
        family, title, names, partial(family.analyze, banks, prompts=prompts, **settings)
    )


def problem_of(error: Exception) -> str:
    """One of `FAILURES` as a sentence; Polars's own errors are about tables that are damaged."""
    if isinstance(error, LogitbankError):
        return str(error)
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"A table cannot be read ({first}). Run `logitbank verify` on the bank."
