"""Bars on a terminal, lines elsewhere: how much is done of bytes, rows, parts or steps.

An extraction's bar is in `extract`, since it follows events and tells lines where there is no
terminal; it looks as `bars` says.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from logitbank.cli.output import clean, err, say
from logitbank.wording import readable_bytes


def bars(*amounts: ProgressColumn, transient: bool = False) -> Progress:
    """What is done, a bar, these amounts, and the time left."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *amounts,
        TimeRemainingColumn(),
        console=err,
        disable=not err.is_interactive,
        transient=transient,
    )


FIRST_S, _LONGEST_S = 5.0, 30.0
"""Seconds until the first line without a terminal, and the longest time between two lines."""


class Cadence:
    """When the next line is due: after 5 s, and then at growing intervals up to half a minute."""

    def __init__(self) -> None:
        self._gap = FIRST_S
        self._due = time.monotonic() + self._gap

    def is_due(self) -> bool:
        """Whether a line is due now; the next one is due later."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._gap = min(_LONGEST_S, 2 * self._gap)
        self._due = now + self._gap
        return True


class Bar:
    """One bar: called with what is done, and all there is, from any thread.

    Where there is no terminal, such as in the log of a job, it is a line on stderr after 5 s, and
    then ever more seldom, up to every half minute.
    """

    def __init__(self, progress: Progress, what: str, amount: Callable[[int], str]) -> None:
        self._progress, self._what, self._amount = progress, what, amount
        self._task = progress.add_task(what, total=None)
        self._cadence, self._lock = Cadence(), threading.Lock()

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)
        if err.is_interactive:
            return
        with self._lock:
            if self._cadence.is_due():
                amounts = f"{self._amount(done)} of {self._amount(total)}"
                say(clean(f"{self._what}: {amounts}" if self._what else amounts))

    def about(self, what: str, done: int, total: int) -> None:
        """As a call, naming what is at hand."""
        self._what = what
        self._progress.update(self._task, description=clean(what))
        self(done, total)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Meanwhile, print a line on stderr after 5 s, and then at growing intervals."""
    began, ended = time.monotonic(), threading.Event()

    def report() -> None:
        gap = FIRST_S
        while not ended.wait(gap):
            say(clean(f"{what} ({time.monotonic() - began:.0f} s)"))
            gap = min(_LONGEST_S, 2 * gap)

    thread = threading.Thread(target=report, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def byte_progress(what: str) -> Iterator[Bar]:
    """While in it, a bar of bytes with their rate."""
    with bars(DownloadColumn(), TransferSpeedColumn()) as progress:
        yield Bar(progress, what, readable_bytes)


@contextmanager
def count_progress(what: str = "", *, transient: bool = False) -> Iterator[Bar]:
    """While in it, a bar of rows, parts or steps, which is gone at the end where `transient`."""
    with bars(MofNCompleteColumn(), transient=transient) as progress:
        yield Bar(progress, what, "{:,}".format)
