"""Merge banks: each is verified and copied as by `pull`, then further options are scored."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from logitbank.errors import DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.damage import Remedy
from logitbank.store.care.lost import require_tables
from logitbank.store.care.verify import verify
from logitbank.store.change.rescore import rescore
from logitbank.store.files import objects
from logitbank.store.files.staging import remove_dead
from logitbank.store.format import index
from logitbank.store.progress import Progress
from logitbank.store.share.copying import Part, copy, open_folder
from logitbank.store.share.selection import chosen
from logitbank.store.share.targets import Source


class Merged(NamedTuple):
    """Result of a merge."""

    deposits: int
    """Deposits that were added, or got scores of further options."""
    tables: int
    """Query sets and tables of prompts that were added."""
    bytes: int
    """Bytes of the copied objects of deposits and heads."""
    incomplete: int
    """Deposits of the sources that were left out because they are in progress."""


def merge(into: str | Path, *banks: str | Path, progress: Progress | None = None) -> Merged:
    """Copy the contents of other banks into one, which is created if it does not exist.

    The result has all query sets, prompts, heads and whole deposits. Tables and heads that the bank
    has lost come back. Data that several banks have must be the same bytes. A whole deposit
    replaces a part of it in the bank. Options that only another bank's prompts name are then scored
    from full rows or states. To finish an interrupted merge, make the same call again.

    Parameters
    ----------
    into
        Folder of the bank to write.
    banks
        Banks to read. They are not changed.
    progress
        Called with the bytes copied so far, and the total.

    Raises
    ------
    UsageError
        No bank is named, or `into` is one of them or a URL.
    BankError
        Deposits or prompts differ. The message names both. Nothing was copied.
    DamagedError
        A source is damaged, or has lost a table that no other bank here has. Nothing was copied.
    """
    if not banks:
        raise UsageError("Nothing to merge. Name the banks to read.")
    if any(Path(bank).resolve() == Path(into).resolve() for bank in banks):
        raise UsageError(f"Cannot merge {into} into itself. Name other banks.")
    folder, sources = open_folder(into), [Bank.open(bank, rows=True) for bank in banks]
    _require_tables(Path(into), sources)
    for bank in sources:
        _require_sound(bank)
    parts = [Part(Source(bank.path), chosen(bank.path)) for bank in sources]
    done = copy(parts, folder, progress=progress)
    target = Bank.open(into)
    for deposit in target.deposits():
        if deposit.layout.keep.has_full_rows:
            rescore(deposit)
    remove_dead(target.path)
    added = {folder for moves in done.moves for folder in moves.deposits}
    tables = sum(index.is_table(path) for moves in done.moves for path in moves.sent)
    sizes = (
        value.digest.bytes
        for moves in done.moves
        for path, value in moves.sent.items()
        if index.object_deposit(path) or index.object_head(path)
    )
    incomplete = sum(not deposit.sealed for bank in sources for deposit in bank.deposits())
    return Merged(len(added), tables, sum(sizes), incomplete)


def _require_tables(into: Path, sources: Sequence[Bank]) -> None:
    """Refuse sources that have lost a table of their deposits which no other bank here has."""
    roots = [into, *(bank.path for bank in sources)]
    for bank in sources:
        others = [root for root in roots if root != bank.path]
        require_tables(bank.path, bank.deposits(), others=others)


def _require_sound(bank: Bank) -> None:
    """Refuse a damaged source before anything is copied.

    Missing tables may be in another bank. Foreign files, indices and groups are not copied. A copy
    of a bank at a URL was verified when it was opened.
    """
    if bank.url is not None:
        return
    damage = verify(bank)
    for each in damage:
        if index.is_object(each.path):  # perhaps a folder, pipe or link
            objects.require_file(objects.plain_path(bank.path, each.path))
    for each in damage:
        is_lost_table = index.is_table(each.path) and each.problem == "missing"
        is_group = index.is_group(each.path)
        if not (is_lost_table or is_group or each.remedy in (Remedy.REMOVE, Remedy.PUSH)):
            raise DamagedError(
                f"{bank.path}/{each.path} is {each.problem} ({each.detail}), so nothing was copied."
                f" {each.remedy.format(bank=bank.path)}"
            )
