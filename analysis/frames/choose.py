"""Which prompt sets a family analyses, and which of them together."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

Columns = Mapping[str, Collection[str]]
"""The columns of prompt sets, by their names."""
ChoosePrompts = Callable[[Columns], Sequence[tuple[str, ...]]]
"""Chooses the prompt sets of a family: those that are analysed together, for each analysis."""


class HasPrompts(Protocol):
    """The parts of a family that the reader needs."""

    @property
    def title(self) -> str: ...
    @property
    def prompts(self) -> ChoosePrompts: ...
    @property
    def example(self) -> str: ...
    @property
    def several_prompts(self) -> bool: ...


def on_request(sets: Columns) -> Sequence[tuple[str, ...]]:
    """No prompt set, of a family that reads all full rows: it analyses the one that a user names.

    >>> on_request({"a": []})
    []
    """
    return []


def with_columns(*columns: str) -> ChoosePrompts:
    """Every prompt set with these columns, each analysed alone.

    >>> with_columns("paired")({"a": ["paired", "gold"], "b": ["gold"], "c": ["paired"]})
    [('a',), ('c',)]
    """
    required = set(columns)
    return lambda sets: [(name,) for name in sorted(sets) if required.issubset(sets[name])]


def companion(name: str) -> str:
    """The prompt set that `extract` adds to one of WinoBias: what follows " not".

    >>> companion("winobias"), companion("winobias@de_CH")
    ('winobias-not', 'winobias-not@de_CH')
    """
    own, at, language = name.partition("@")
    return f"{own}-not{at}{language}"


def with_companions(choose: ChoosePrompts) -> ChoosePrompts:
    """The chosen prompt sets, each together with its `companion`, if there is one.

    >>> with_companions(with_columns("paired"))({"a": ["paired"], "a-not": [], "b": ["paired"]})
    [('a', 'a-not'), ('b',)]
    """
    return lambda sets: [
        (*names, *(companion(name) for name in names if companion(name) in sets))
        for names in choose(sets)
    ]


def with_prefix(text: str) -> ChoosePrompts:
    """The prompt sets whose names begin so, analysed together.

    >>> with_prefix("un")({"unqover-b": [], "unqover-a": [], "lambada": []})
    [('unqover-a', 'unqover-b')]
    """
    return lambda sets: _together(name for name in sorted(sets) if name.startswith(text))


def named(*names: str) -> ChoosePrompts:
    """The prompt sets of these names, analysed together.

    >>> named("b", "a", "c")({"a": [], "b": []})
    [('b', 'a')]
    """
    return lambda sets: _together(name for name in names if name in sets)


def _together(names: Iterable[str]) -> list[tuple[str, ...]]:
    chosen = tuple(names)
    return [chosen] if chosen else []
