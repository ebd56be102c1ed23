"""What is at hand before anything is scored, and how far it is: told where it takes long.

Who reads, tokenizes, plans or writes names its step with `step` or `each`, whoever listens; who
drives them hears of it with `steps_told`. It knows no screen.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

FIRST_S = 5.0
"""What takes less is not told."""
_LONGEST_S, _LOOK_S = 30.0, 0.5


class Cadence:
    """When the next line is due: after 5 s, and then ever more seldom, up to every half minute."""

    def __init__(
        self, clock: Callable[[], float] | None = None, *, first_s: float | None = None
    ) -> None:
        self._clock, self._gap = clock or time.monotonic, FIRST_S if first_s is None else first_s
        self._due = self._clock() + self._gap

    def is_due(self) -> bool:
        """Whether a line is to be told now; the one after it is due later."""
        now = self._clock()
        if now < self._due:
            return False
        self._gap = min(_LONGEST_S, 2 * self._gap)
        self._due = now + self._gap
        return True


class Step:
    """Something that is being done; as text, with how much of it is."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = what, total
        self.began = time.monotonic()
        self.done = 0
        """How many of its items; who does it counts."""

    def __str__(self) -> str:
        if self._total is not None:
            return f"{self._what}: {self.done:,} of {self._total:,}"
        return f"{self._what}: {self.done:,} so far" if self.done else self._what


_steps: list[Step] = []
"""Those at hand, each within the one before it. One thread plans; others only look."""


@contextmanager
def step(what: str, total: int | None = None) -> Iterator[Step]:
    """While in it, this is at hand."""
    at = Step(what, total)
    _steps.append(at)
    try:
        yield at
    finally:
        _steps.remove(at)


def each(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """These items, counted as they are taken.

    Examples
    --------
    >>> for item in each("ab", "reading letters", 2):
    ...     print(item, "|", _steps[-1])
    a | reading letters: 0 of 2
    b | reading letters: 1 of 2
    """
    with step(what, total) as at:
        for at.done, item in enumerate(items):
            yield item


@contextmanager
def steps_told(listener: Callable[[str], None], *, first_s: float | None = None) -> Iterator[None]:
    """Meanwhile, what is at hand is told to `listener`, in another thread, where it takes long.

    Of steps within each other it is the innermost that has lasted `first_s`.
    """
    first_s = FIRST_S if first_s is None else first_s
    ended, cadence = threading.Event(), Cadence(first_s=first_s)

    def look() -> None:
        while not ended.wait(_LOOK_S):
            long = [at for at in [*_steps] if time.monotonic() - at.began >= first_s]
            if long and cadence.is_due():
                listener(str(long[-1]))

    thread = threading.Thread(target=look, name="steps", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
