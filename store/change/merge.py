"""Merge banks: the union of their tables and deposits.

Everything is compared before anything is copied. If several banks have the same deposit, the first
one stays.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from logitbank.errors import BankError, DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.damage import Remedy
from logitbank.store.care.lost import require_tables
from logitbank.store.care.verify import verify
from logitbank.store.change.copying import copy_heads, missing_heads, prepare, tables_to_copy
from logitbank.store.change.merge_plan import Addition, plan
from logitbank.store.change.rescore import rescore
from logitbank.store.deposits.catalog import remove_abandoned
from logitbank.store.files import objects
from logitbank.store.files.staging import remove_dead
from logitbank.store.format import index
from logitbank.store.progress import Progress, counting
from logitbank.store.share.selection import head_objects
from logitbank.store.share.targets import Folder, Source


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
        No bank is named, or `into` is one of them.
    BankError
        Deposits or prompts differ. The message names both. Nothing was copied.
    DamagedError
        A source is damaged, or has lost a table that no other bank here has. Nothing was copied.
    """
    if not banks:
        raise UsageError("Nothing to merge. Name the banks to read.")
    if any(Path(bank).resolve() == Path(into).resolve() for bank in banks):
        raise UsageError(f"Cannot merge {into} into itself. Name other banks.")
    sources = [Bank.open(bank, rows=True) for bank in banks]
    target = Bank.open(into) if objects.is_occupied(Path(into)) else None
    _require_tables(target, sources)
    for bank in sources:
        _require_sound(bank)
    tables = tables_to_copy(target, sources)
    additions = plan(target, sources)
    deposits = [deposit for bank in sources for deposit in bank.deposits()]
    whole = [deposit for deposit in deposits if deposit.sealed]
    heads = missing_heads(None if target is None else target.path, whole)
    target = prepare(into, target, tables, [(bank, _models(bank, additions)) for bank in sources])
    objects_of_heads = (value for head in heads for value in head_objects(head).values())
    total = sum(a.bytes for a in additions) + sum(v.digest.bytes for v in objects_of_heads)
    advance = counting(total, progress)
    copy_heads(target.path, heads, advance)
    for addition in additions:
        if addition.unfinished is not None:
            remove_abandoned(addition.unfinished, with_blocks=True)
        _require_planned(target, addition)
        Folder(target.path).send(addition.objects, Source(addition.source.bank), advance)
    for deposit in target.deposits():
        if deposit.layout.keep.has_full_rows:
            rescore(deposit)
    remove_dead(target.path)
    added = len({addition.folder for addition in additions})
    return Merged(added, len(tables), total, len(deposits) - len(whole))


def _require_tables(target: Bank | None, sources: Sequence[Bank]) -> None:
    """Refuse sources that have lost a table of their deposits which no other bank here has."""
    roots = [bank.path for bank in [*([] if target is None else [target]), *sources]]
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


def _require_planned(target: Bank, addition: Addition) -> None:
    """Refuse a deposit that another process writes, or wrote since the plan, differently."""
    path = f"{addition.folder}/zarr.json"
    file, planned = objects.plain_path(target.path, path), addition.objects.get(path)
    if planned is not None and file.exists() and objects.digest(file) != planned.digest:
        raise BankError(
            f"Another process has written {file.parent} meanwhile. Run the same command again."
        )


def _models(bank: Bank, additions: Sequence[Addition]) -> set[str]:
    """Models of which deposits are copied from a bank."""
    return {a.source.checkpoint.model for a in additions if a.source.bank == bank.path}
