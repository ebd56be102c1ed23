"""The families of metrics there are: those of this folder, of installed packages, and of users.

Each is registered by the same call, when its module is imported. No list names them.
"""

import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from logitbank.analysis.family import REGISTERED, Family, unregistered
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.results.measured import Measured
    from logitbank.analysis.study import Study

BUILT_IN = tuple(sorted(entry.name for entry in pkgutil.iter_modules(__path__)))
"""The modules of this folder, which are named as their families."""


def built_in(name: str) -> Family:
    """The family of a module of this folder, without importing the others."""
    import_module(f"{__name__}.{name}")
    return REGISTERED[name]


def families() -> Mapping[str, Family]:
    """Every family by its name, in the order of a report."""
    _load()
    return dict(sorted(REGISTERED.items(), key=lambda item: (item[1].order, item[0])))


def register(family: Family) -> Family:
    """Add a family to those of analyses, reports and comparisons of this process.

    An installed package does the same with an entry point of the group `logitbank_families`.

    Returns
    -------
    Family
        The family with its function `analyze`.

    Raises
    ------
    UsageError
        The name is taken or is no identifier, or the family has neither measures and items nor
        an analysis of its own.
    """
    if not family.name.isidentifier():
        raise UsageError(f"Family {family.name!r} needs a name of letters, digits and underscores.")
    if family.analyze is unregistered:
        if not family.measures or family.items is None:
            raise UsageError(f"Family {family.name!r} has no measures, or no items. Name both.")
        family = replace(family, analyze=_common(family))
    importing = f"{__name__}.{family.name}" in sys.modules and family.name not in REGISTERED
    if family.name in BUILT_IN and not importing:
        raise UsageError(f"Family {family.name!r} exists. Give yours another name.")
    REGISTERED[family.name] = family
    return family


@cache
def _load() -> None:
    """Import the families of this folder and of installed packages."""
    for name in BUILT_IN:
        built_in(name)
    from importlib.metadata import entry_points

    for entry in entry_points(group="logitbank_families"):
        register(entry.load())


def _common(family: Family) -> Callable[..., "Study[Measured]"]:
    """The analysis of a family that has no settings."""

    def analyze(
        banks: "Banks",
        *,
        prompts: str | None = None,
        models: Sequence[str] | None = None,
        cache: "ScanCache | None" = None,
    ) -> "Study[Measured]":
        from logitbank.analysis.frames.reader import read_scores
        from logitbank.analysis.results.studies import measured_study

        return measured_study(
            family, read_scores(banks, prompts, models, family=family, cache=cache)
        )

    analyze.__name__ = analyze.__qualname__ = family.name
    analyze.__doc__ = family.description
    return analyze
