"""All analyses that the prompt sets of banks allow."""

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from logitbank.analysis.family import Family, families
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.scan_cache import ScanCache
from logitbank.analysis.frames.sources import ColumnsOf, no_prompts
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank


class Analysis(NamedTuple):
    """An analysis that prompt sets allow; `run()` does it."""

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

    A family chooses its prompt sets; those that none chooses are analysed by `options`.

    Raises
    ------
    UsageError
        No bank has one of `prompts`.
    """
    opened = open_banks(banks, models=models)
    names = {name for bank in opened for name in bank.prompt_sets}
    for name in prompts or ():
        if name not in names:
            raise UsageError(no_prompts(opened, repr(name)))
    chosen = names if prompts is None else names.intersection(prompts)
    return planned(opened, chosen, models=models, bootstrap=bootstrap, cache=cache or ScanCache())


def planned(
    banks: Sequence[Bank],
    names: Collection[str],
    *,
    models: Sequence[str] | None,
    bootstrap: int,
    cache: ScanCache,
) -> list[Analysis]:
    """As `analyses`, of open banks and of prompt sets that they have."""
    columns = ColumnsOf(banks, names)

    def analysis(family: Family, own: tuple[str, ...], title: str) -> Analysis:
        parameters = inspect.signature(family.analyze).parameters
        own_resamples = {"bootstrap": bootstrap} if "bootstrap" in parameters else {}
        run = partial(
            family.analyze, banks, prompts=own if family.several_prompts else own[0],
            models=models, cache=cache, **own_resamples,
        )  # fmt: skip
        return Analysis(family, title, own, run)

    plans = [
        analysis(family, own, family.title)
        for family in families().values()
        for own in family.prompts(columns)
    ]
    known = {name for plan in plans for name in plan.prompts}
    options = families()["options"]
    return plans + [
        analysis(options, (name,), f"{options.title} of {name}")
        for name in sorted(set(names) - known)
    ]
