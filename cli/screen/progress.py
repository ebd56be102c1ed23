"""Progress on stderr: bars on a terminal, and a line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.constrain import Constrain
from rich.markup import escape
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

from logitbank.cli.output import err, one_line, say
from logitbank.wording import readable_bytes

FIRST_S, LONGEST_S = 5.0, 30.0
"""Seconds before the first line, and the longest time between two lines."""


class _Bars(Progress):
    """Bars that leave room for the ^C of the terminal, which would otherwise break the line."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield Constrain(self.make_tasks_table(self.tasks), err.width - 6)


def bars(*amounts: ProgressColumn) -> Progress:
    """A Rich bar with these amounts, on a terminal only; it disappears at the end."""
    return _Bars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *amounts,
        TimeRemainingColumn(),
        console=err,
        disable=not err.is_interactive,
        transient=True,
    )


class Bar:
    """Called with the amount done and the total, from any thread."""

    def __init__(self, progress: Progress, what: str, amount: Callable[[int], str]) -> None:
        self._progress, self._what, self._amount = progress, what, amount
        self._task = progress.add_task(what, total=None)
        self._lock = threading.Lock()
        self._gap = FIRST_S
        self._due = time.monotonic() + FIRST_S

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)
        now = time.monotonic()
        with self._lock:
            if err.is_interactive or now < self._due:
                return
            self._gap = min(LONGEST_S, 2 * self._gap)
            self._due = now + self._gap
            what = f"{self._what}: " if self._what else ""
            say(one_line(f"{what}{self._amount(done)} of {self._amount(total)}"))

    def about(self, what: str, done: int, total: int) -> None:
        """The same with a new description."""
        self._what = what
        self._progress.update(self._task, description=escape(one_line(what)))
        self(done, total)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Print a line after 5 s of work, and more lines at growing intervals."""
    began, ended = time.monotonic(), threading.Event()

    def report() -> None:
        gap = FIRST_S
        while not ended.wait(gap):
            say(one_line(f"{what} ({time.monotonic() - began:.0f} s)"))
            gap = min(LONGEST_S, 2 * gap)

    thread = threading.Thread(target=report, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def byte_progress(what: str) -> Iterator[Bar]:
    """A bar of bytes and their rate."""
    with bars(DownloadColumn(), TransferSpeedColumn()) as progress:
        yield Bar(progress, what, readable_bytes)


@contextmanager
def count_progress(what: str = "") -> Iterator[Bar]:
    """A bar of items."""
    with bars(MofNCompleteColumn()) as progress:
        yield Bar(progress, what, "{:,}".format)
