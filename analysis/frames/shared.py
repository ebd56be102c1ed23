"""One read of a prompt set for several studies: what a report asks of it more than once.

Who reads it first makes of each part, beside its own numbers, what the others want of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import polars as pl

from logitbank.errors import LogitbankError

Prepare = Callable[[Any], Callable[[Any], Any]]
"""As `each_cube` of fairness takes it: of axes, what is made of a cube."""


@dataclass(slots=True)
class Wanted:
    """What a later study wants of each part of a read."""

    prompts: str
    frames: Sequence[pl.LazyFrame]
    """What is read: who reads these very frames reads them for both."""
    columns: Sequence[str]
    """Of the prompts, that must be read for it."""
    prepare: Prepare
    made: list[Any] | None = None
    """Of each frame; None before somebody has read them all, and where something was refused."""

    def beside(self, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`work`, and None where it refuses what it is given: whoever wants it is told then."""

        def made(part: Any) -> Any:
            try:
                return work(part)
            except LogitbankError:
                return None

        return made


_WANTED: ContextVar[Sequence[Wanted]] = ContextVar("wanted", default=())


@contextmanager
def sharing(wanted: Sequence[Wanted]) -> Iterator[None]:
    """Within it, studies read these prompt sets once."""
    token = _WANTED.set(tuple(wanted))
    try:
        yield
    finally:
        _WANTED.reset(token)


def wanted_of(frames: object) -> Wanted | None:
    """What others want of frames, beside what is made of them."""
    return next((wanted for wanted in _WANTED.get() if wanted.frames is frames), None)


def shared_frames(prompts: str) -> Sequence[pl.LazyFrame] | None:
    """The frames that all studies read a prompt set by; None where it is not shared."""
    return next((wanted.frames for wanted in _WANTED.get() if wanted.prompts == prompts), None)
