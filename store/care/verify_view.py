"""Find damage in the files of a view, and whether its bank is the one that it was made of."""

from collections.abc import Iterator
from pathlib import Path

from logitbank.errors import DamagedError, LogitbankError, RemoteError
from logitbank.store.bank import Bank
from logitbank.store.care.damage import Damage, Problem
from logitbank.store.files import objects
from logitbank.store.filter import kept, view_files
from logitbank.store.filter.view import View
from logitbank.store.filter.view_files import FILTER, ViewDocument
from logitbank.store.format.schema import VIEW


def is_view(path: Path) -> bool:
    return (path / VIEW).is_file()


def view_damage(folder: Path) -> tuple[Damage, ...]:
    """What of a view is not as it was written; nothing of its bank is read but documents.

    Raises
    ------
    RemoteError
        Its bank is at a URL that cannot be reached.
    """
    return tuple(_damage(folder))


def _damage(folder: Path) -> Iterator[Damage]:
    for entry in objects.entries(folder):
        if entry.name not in (FILTER, VIEW, kept.FOLDER):
            yield Damage(entry.name, "foreign", "a view has no such file")
    for path, was_ours in kept.unknown_or_damaged(folder):
        if was_ours:
            yield Damage(path, "changed", "it is not read, but computed again; it may be deleted")
        else:
            yield Damage(path, "foreign", "a view has no such file")
    try:
        document = ViewDocument.read(folder)
    except LogitbankError as error:
        yield Damage(VIEW, _changed_or_unreadable(error), str(error))
        return
    if not document.checked:
        detail = "it has no digests, so nothing vouches for the filter or the bank; make it again"
        yield Damage(VIEW, "unreadable", f"{detail} with `logitbank debias apply`")
    if not (folder / FILTER).is_file():
        yield Damage(FILTER, "missing", "what the view is seen through")
        return
    try:
        view_files.read_filter(folder, document)
    except LogitbankError as error:
        yield Damage(FILTER, _changed_or_unreadable(error), str(error))
        return
    yield from _bank_damage(folder, document)


def _bank_damage(folder: Path, document: ViewDocument) -> Iterator[Damage]:
    try:
        bank = Bank.open(view_files.bank_of(folder, document))
    except RemoteError:
        raise
    except LogitbankError as error:
        yield Damage(document.bank, "missing", str(error))
        return
    try:
        view_files.check_source(folder, document, bank.path)
        View.open(folder)
    except LogitbankError as error:
        yield Damage(document.bank, "swapped", str(error))


def _changed_or_unreadable(error: LogitbankError) -> Problem:
    return "changed" if isinstance(error, DamagedError) else "unreadable"
