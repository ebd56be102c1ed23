"""Join banks into one: the union of their tables and deposits.

Everything is compared before anything is copied. Attributes and commits of deposits are copied byte
for byte. If several banks have the same deposit, the attributes of the first one stay, and the
commit of each block names the engine that computed it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from logitbank.errors import UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.lost import require_tables
from logitbank.store.change.about import add_sources, described_as
from logitbank.store.change.copying import (
    Progress,
    copy_deposit,
    copy_head,
    counting,
    missing_heads,
    tables_to_copy,
    write_tables,
)
from logitbank.store.change.merge_plan import Addition, plan
from logitbank.store.change.rescore import rescore
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.files import objects
from logitbank.store.files.staging import remove_dead
from logitbank.store.format.about import FIELDS, own_fields


class Merged(NamedTuple):
    """Result of a merge."""

    deposits: int
    """Deposits that were added or extended."""
    tables: int
    """Query sets and tables of prompts that were added."""
    bytes: int
    """Bytes of the copied objects of deposits and heads."""


def merge(into: str | Path, *banks: str | Path, progress: Progress | None = None) -> Merged:
    """Copy the contents of other banks into one, which is created if it does not exist.

    The result has all query sets, prompts, heads and deposits. Tables and heads that the bank has
    lost come back. Blocks that several banks have must be equal; all others are added. Options that
    only another bank's prompts name are then scored from full rows or states. To finish an
    interrupted merge, make the same call again.

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
        A source differs from its commits, or has lost a table that no other bank here has.
    """
    if not banks:
        raise UsageError("there is nothing to merge; name the banks to read")
    if any(Path(bank).resolve() == Path(into).resolve() for bank in banks):
        raise UsageError(f"{into} cannot be merged into itself; name other banks")
    sources = [Bank.open(bank, rows=True) for bank in banks]
    target = Bank.open(into) if objects.holds_something(Path(into)) else None
    _require_tables(target, sources)
    copies = tables_to_copy(target, sources)
    additions = plan(target, sources)
    deposits = (deposit for bank in sources for deposit in bank.deposits())
    needed = missing_heads(None if target is None else target.path, deposits)
    if target is None:
        target = Bank.create(into, **_common(sources))
    _record(target, sources, additions)
    write_tables(target, copies)
    total = sum(digest.bytes for a in additions for digest in a.objects.values())
    total += sum(head.size for head in needed)
    copied = counting(total, progress)
    for head in needed:
        copy_head(head, target.path, copied)
    for addition in additions:
        copy_deposit(target.path, addition, copied)
    for deposit in target.deposits():
        _finish(target, deposit)
    remove_dead(target.path)
    return Merged(len({a.folder for a in additions}), len(copies), total)


def _require_tables(target: Bank | None, sources: Sequence[Bank]) -> None:
    """Refuse sources that have lost a table of their deposits.

    A merge brings lost tables back. So a table may be missing that another of the banks has, or
    that only the target has lost.
    """
    roots = [bank.path for bank in [*([] if target is None else [target]), *sources]]
    for bank in sources:
        others = [root for root in roots if root != bank.path]
        require_tables(bank.path, bank.deposits(), others=others)


def _common(sources: Sequence[Bank]) -> dict[str, str]:
    """Title, license and citation that all sources share. The field `sources` lists the others."""
    about = [own_fields(bank.attributes) for bank in sources]
    return {
        name: about[0][name] if len({fields[name] for fields in about}) == 1 else ""
        for name in FIELDS
    }


def _record(target: Bank, sources: Sequence[Bank], additions: Sequence[Addition]) -> None:
    """Record where the deposits come from, before any is copied."""
    for bank in sources:
        models = {
            a.source.checkpoint.model for a in additions if bank.path in a.source.path.parents
        }
        sources_of_bank = described_as(bank, models) if models else []
        fields = own_fields(target.attributes)
        add_sources(target.path, [s for s in sources_of_bank if own_fields(s) != fields])


def _finish(target: Bank, deposit: Deposit) -> None:
    """Seal a complete deposit, and score options that other banks' prompts name."""
    if deposit.complete and not deposit.sealed:
        DepositWriter(deposit, engine=deposit.spec.provenance.get("engine")).seal()
    full = deposit.layout.keep.whole_rows
    if full and (options := target.missing_options(deposit)) is not None:
        rescore(deposit, options)
