"""Bars for what goes by bytes, and the commands that check and mend a bank."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from logitbank.cli.screen.tables import clean, err, print_lines
from logitbank.wording import counted


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


def verify_bank(path: Path, *, mend: bool) -> None:
    """Print the damage in a bank, repair it if asked to, and exit."""
    from logitbank.store import Bank, leftovers, repair, verify
    from logitbank.store.care.verify_view import is_view
    from logitbank.store.remote.urls import url_of

    if url_of(path) is None and is_view(path):
        _verify_view(path, mend=mend)
    bank = Bank.open(path)
    with byte_progress("verifying") as bar:
        damage = verify(bank, progress=bar.about)
    print_lines(map(str, damage))
    print_lines(
        [f"{counted(len(damage), 'damaged object')} in {path}" if damage else f"{path} is whole"]
    )
    if mend and damage:
        done = repair(bank, damage)
        print_lines(f"made again: {name}" for name in done.restored)
        print_lines(
            f"dropped: {counted(len(blocks), 'block')} of {folder}"
            for folder, blocks in done.dropped.items()
        )
        with byte_progress("verifying again") as bar:
            damage = verify(bank, progress=bar.about)
        print_lines(f"still damaged: {each.path}" for each in damage)
        if damage:
            print_lines(["take these from another copy of the bank"])
    elif damage:
        print_lines(
            [f"`logitbank verify --repair {path}` drops what is damaged; extract then fills it"]
        )
    for folder, names in leftovers(bank).items():
        more = f" and {counted(len(names) - 1, 'more object')}" if len(names) > 1 else ""
        print_lines(
            [
                f"not committed, or its commit or table is gone: {folder}/{names[0]}{more};"
                " nobody reads it, and the same extract writes it again"
            ]
        )
    if not damage and (unfinished := sum(not d.complete for d in bank.deposits())):
        print_lines(
            [f"deposits with blocks still to be run: {unfinished}; `logitbank info {path}`"]
        )
    raise typer.Exit(1 if damage else 0)


def _verify_view(path: Path, *, mend: bool) -> NoReturn:
    """Print the damage in a view, and exit."""
    from logitbank.errors import UsageError
    from logitbank.store import verify
    from logitbank.store.filter.view_files import ViewDocument, bank_of

    if mend:
        raise UsageError(
            f"{path} is a view, which is not repaired but made again with `logitbank debias apply`"
        )
    damage = verify(path)
    print_lines(map(str, damage))
    if damage:
        print_lines([f"{counted(len(damage), 'damaged object')} in {path}"])
        raise typer.Exit(1)
    bank = bank_of(path, ViewDocument.read(path))
    print_lines(
        [f"{path} is whole, a view of {bank}; `logitbank verify {bank}` looks at what is in that"]
    )
    raise typer.Exit(0)
