"""Bars for what goes by bytes."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from logitbank.cli.screen.tables import clean, err


class ByteProgress:
    """A bar of bytes with a rate and the time left on a terminal, silence elsewhere."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def about(self, path: str, done: int, total: int) -> None:
        """As a call, naming the object at hand."""
        self._progress.update(self._task, completed=done, total=total, description=clean(path))


@contextmanager
def byte_progress(what: str) -> Iterator[ByteProgress]:
    """While in it, a bar called `what`."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=err,
        disable=not err.is_interactive,
    ) as progress:
        yield ByteProgress(progress, what)
