"""Bars on a terminal, silence elsewhere: how much is done of bytes, rows, parts or steps.

An extraction's bar is in `run_progress`, since it follows events and tells lines where there is no
terminal; it looks as `bars` says.
"""

from collections.abc import Iterator
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

from logitbank.cli.screen.tables import clean, err


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
    """One bar: called with what is done, and all there is."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def about(self, what: str, done: int, total: int) -> None:
        """As a call, naming what is at hand."""
        self._progress.update(self._task, completed=done, total=total, description=clean(what))


@contextmanager
def byte_progress(what: str) -> Iterator[Bar]:
    """While in it, a bar of bytes with their rate."""
    with bars(DownloadColumn(), TransferSpeedColumn()) as progress:
        yield Bar(progress, what)


@contextmanager
def count_progress(what: str = "", *, transient: bool = False) -> Iterator[Bar]:
    """While in it, a bar of rows, parts or steps, which is gone at the end where `transient`."""
    with bars(MofNCompleteColumn(), transient=transient) as progress:
        yield Bar(progress, what)
