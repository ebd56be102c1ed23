"""What a family of metrics is, and which there are: the folders of `analysis/families`.

This module and the `__init__` of a family import nothing heavy; a family's own modules are imported
when it is asked for.
"""

import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    import polars as pl

    from logitbank.analysis.drawing.sheet import Names, Sheet
    from logitbank.analysis.frames.shared import Wanted
    from logitbank.analysis.results.message import Message
    from logitbank.analysis.results.study import Study
    from logitbank.analysis.results.tables import Result
    from logitbank.store import Bank

R = TypeVar("R", bound="Result")
Columns = Mapping[str, Collection[str]]
"""The columns of prompt sets, by their names."""
Prompts = Callable[[Columns], Sequence[tuple[str, ...]]]
"""Chooses the prompt sets of a family: those that are studied together, for each of its studies."""
Wants: TypeAlias = (
    "Callable[[Sequence[Bank], tuple[str, ...], Sequence[str] | None, int], list[Wanted]]"
)
"""Of banks, prompt sets, models and a number of resamples: what is wanted of others' reads."""

GapWants: TypeAlias = "Callable[[Sequence[Bank], str, Sequence[str] | None, int], list[Wanted]]"
"""The same, of one prompt set."""


class Gap(NamedTuple):
    """A bias that a trade-off may set against performance."""

    label: str
    prompts: str
    """The prompt set that it is measured on."""
    curve: "Callable[[Sequence[Bank], str, Sequence[str] | None, int], pl.DataFrame]"
    """Of banks, a prompt set, models and a number of resamples: a curve over checkpoints."""
    wants: "GapWants" = lambda *_: []
    """Of the same: what other studies of a report are to make for it, as they read the prompts."""


class Drawing(NamedTuple):
    """What the figures of a result draw, on paper and on pages."""

    tables: "Callable[[Any], dict[str, pl.DataFrame]]"
    """By the figure's name."""
    sheets: "Callable[[Any, Mapping[str, pl.DataFrame], Names], dict[str, Sheet]]"
    """Of tables by kind, and what calls their series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[R]):
    """A family of metrics: what it asks, of which prompts, and what it gives."""

    name: str
    title: str
    place: int
    """Its place among the sections of a report."""
    asks: str
    """What it asks, for a reader who has never heard of it."""
    cautions: tuple[str, ...]
    """What its numbers do not say."""
    result: type[R]
    prompts: Prompts
    study: "Callable[[Sequence[Bank], tuple[str, ...], Sequence[str] | None, int], Study[R]]"
    """Of banks, prompt sets, models and a number of resamples: the study, nothing else chosen."""
    drawing: Drawing
    wants: Wants = lambda *_: []
    """What other studies of a report, which read the same, are to make for this one."""
    brief: Mapping[str, Sequence[str]]
    """The tables that people see on the screen, and which columns of them."""
    headline: "Callable[[Sequence[pl.LazyFrame], pl.DataFrame], pl.DataFrame] | None" = None
    """Of scans of one prompt set, and how many pieces its prompts have: model, run, step, metric,
    group and value, for a comparison of banks. No rows where its columns are not the family's."""
    message: "Callable[[R], Message | None] | None" = None
    """What a page says first of a result; None where there is nothing to say."""
    gaps: Mapping[str, Gap] = field(default_factory=dict)


@cache
def families() -> Mapping[str, Family[Any]]:
    """Every family by its name, in the order of a report."""
    package = import_module("logitbank.analysis.families")
    modules = (
        import_module(f"{package.__name__}.{entry.name}")
        for entry in pkgutil.iter_modules(package.__path__)
    )
    all_of_them = (module.family() for module in modules)
    return {family.name: family for family in sorted(all_of_them, key=lambda family: family.place)}


def family_of(result: object) -> Family[Any] | None:
    """The family whose result this is, if it is one's."""
    return next((family for family in families().values() if type(result) is family.result), None)


def columns(names: str) -> tuple[str, ...]:
    """Columns of a table, written as one text.

    >>> columns("score low high")
    ('score', 'low', 'high')
    """
    return tuple(names.split())


def having(*columns: str) -> Prompts:
    """Every prompt set with these columns, by itself.

    >>> having("paired")({"a": ["paired", "gold"], "b": ["gold"], "c": ["paired"]})
    [('a',), ('c',)]
    """
    wanted = set(columns)
    return lambda sets: [(name,) for name in sorted(sets) if wanted.issubset(sets[name])]


def beginning(text: str) -> Prompts:
    """The prompt sets whose names begin so, together.

    >>> beginning("un")({"unqover-b": [], "unqover-a": [], "lambada": []})
    [('unqover-a', 'unqover-b')]
    """
    return lambda sets: _any(name for name in sorted(sets) if name.startswith(text))


def called(*names: str) -> Prompts:
    """The prompt sets of these names, together.

    >>> called("b", "a", "c")({"a": [], "b": []})
    [('b', 'a')]
    """
    return lambda sets: _any(name for name in names if name in sets)


def _any(names: Iterable[str]) -> list[tuple[str, ...]]:
    together = tuple(names)
    return [together] if together else []
