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


class Bar:
    """One bar: called with what is done, and all there is, from any thread.

    Where there is no terminal, such as in the log of a job, it is a line on stderr after 5 s, and
    then ever more seldom, up to every half minute.
    """

    def __init__(self, progress: Progress, what: str, amount: Callable[[int], str]) -> None:
        from logitbank.engine.doing import Cadence

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
    """While in it, a line on stderr after 5 s, and then ever more seldom: this goes on."""
    from logitbank.engine.doing import step, steps_told

    began = time.monotonic()

    def tell(at_hand: str) -> None:
        say(clean(f"{at_hand} ({time.monotonic() - began:.0f} s)"))

    with steps_told(tell), step(what):
        yield


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
