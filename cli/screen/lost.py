"""One line on stderr for each table that a bank has lost."""

from collections.abc import Mapping
from pathlib import Path

from logitbank.cli.screen.tables import err, one_line
from logitbank.errors import LogitbankError


def say_lost(path: Path) -> None:
    """Name the tables that the bank or the view in a folder has lost; of a URL nothing is asked.

    Nothing is said of what is no bank, such as a table of scores among banks.
    """
    from logitbank.store import open_bank
    from logitbank.store.care.lost import lost_of
    from logitbank.store.remote.urls import url_of

    try:
        if url_of(path) is not None:
            return
        lost = lost_of(open_bank(path).path)
    except (LogitbankError, OSError):
        return  # which the command itself meets, and tells better
    print_lost(path, lost)


def print_lost(path: Path, lost: Mapping[str, str]) -> None:
    """A line for each table that is lost, with how one knows."""
    for table, how in lost.items():
        err.print(
            f"{one_line(path)}/{one_line(table)} is missing ({one_line(how)});"
            " `logitbank verify` says what to do",
            soft_wrap=True,
        )
