"""One read of a prompt set for several studies: what a report asks of it more than once.

Who reads it first makes of each part, beside its own numbers, what the others want of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl

from logitbank.errors import LogitbankError

Prepare = Callable[[Any], Callable[[Any], Any]]
"""Of what all parts have in common, as the axes of fairness's cubes: what is made of a part."""
T = TypeVar("T")


@dataclass(slots=True)
class Wanted:
    """What a later study wants of each part of a read."""

    what: str
    """Its name, by which the later study asks for it."""
    prompts: str
    frames: Sequence[pl.LazyFrame]
    """What is read: who reads these very frames reads them for all."""
    prepare: Prepare
    columns: Sequence[str] = ()
    """Of the prompts, that must be read for it."""
    made: list[Any] | None = None
    """Of each frame; None before somebody has read them all, and where something was refused."""


_WANTED: ContextVar[Sequence[Wanted]] = ContextVar("wanted", default=())


@contextmanager
def sharing(wanted: Sequence[Wanted]) -> Iterator[None]:
    """Within it, studies read these prompt sets once."""
    token = _WANTED.set(tuple(wanted))
    try:
        yield
    finally:
        _WANTED.reset(token)


def shared_frames(prompts: str) -> Sequence[pl.LazyFrame] | None:
    """The frames that all studies read a prompt set by; None where it is not shared."""
    return next((wanted.frames for wanted in _WANTED.get() if wanted.prompts == prompts), None)


def wanted_of(frames: object) -> list[Wanted]:
    """What others want of frames, and nobody has made yet."""
    return [each for each in _WANTED.get() if each.frames is frames and each.made is None]


def made_of(frames: object, what: str) -> list[Any] | None:
    """What was made of frames when another study read them; None where none has."""
    own = (each.made for each in _WANTED.get() if each.frames is frames and each.what == what)
    return next(own, None)


def beside(
    work: Callable[[Any], T], wanted: Sequence[Wanted], axes: Any = None
) -> Callable[[Any], tuple[T, list[Any]]]:
    """What is made of a part for oneself, and what of it for each of the others.

    That is None where one refuses what it is given: whoever wants it is told then.
    """

    def unless_refused(other: Callable[[Any], Any], given: Any) -> Any:
        try:
            return other(given)
        except LogitbankError:
            return None

    others = [unless_refused(each.prepare, axes) for each in wanted]
    return lambda part: (
        work(part),
        [other and unless_refused(other, part) for other in others],
    )


def handed_on(wanted: Sequence[Wanted], parts: Sequence[tuple[T, list[Any]]]) -> list[T]:
    """One's own of all parts, when the others have been given theirs."""
    for at, each in enumerate(wanted):
        made = [others[at] for _, others in parts]
        each.made = None if any(part is None for part in made) else made
    return [own for own, _ in parts]
