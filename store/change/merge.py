"""Join banks made by different people: a union of tables and of deposits.

First everything is compared, then anything is copied. A deposit's attributes and commits are copied
byte for byte; where several banks have the same deposit, the attributes of the first one stay, and
each block's commit says which engine computed that block.
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
    """What a merge did."""

    deposits: int
    """Deposits that were added, or given blocks or scores."""
    tables: int
    """Query sets and tables of prompts that were added."""
    bytes: int
    """Bytes of the objects in deposits and heads that were copied."""


def merge(into: str | Path, *banks: str | Path, progress: Progress | None = None) -> Merged:
    """Copy what other banks hold into one, which is made if it is not there.

    Query sets and prompts become a union, and so do heads: one that the bank has lost, or of which
    objects are gone or cut, comes back. A deposit that several banks have must be the same in all:
    what one has committed and another has not is added, what several have must be equal. Options
    that only another bank's prompts name are then scored from full rows, or from states. The same
    call again finishes one that was interrupted.

    Parameters
    ----------
    into
        Folder of the bank that is written to.
    banks
        Banks that are read, and not changed.
    progress
        Called with the bytes copied so far, and in all.

    Raises
    ------
    UsageError
        No bank is named, or one is the bank to be written to.
    BankError
        Deposits or prompts differ; names them and what differs. Nothing was copied then.
    DamagedError
        A source is not what its commits say, or has lost a table that no other bank here has.
    """
    if not banks:
        raise UsageError("there is nothing to merge; name the banks to be read")
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
    """Refuse to hand on deposits without the prompts or texts that they had.

    A merge is also what brings a lost table back, so what another of the banks has is not missed,
    nor what only the target has lost: it loses nothing by what comes.
    """
    roots = [bank.path for bank in [*([] if target is None else [target]), *sources]]
    for bank in sources:
        others = [root for root in roots if root != bank.path]
        require_tables(bank.path, bank.deposits(), others=others)


def _common(sources: Sequence[Bank]) -> dict[str, str]:
    """Title, licence and citation that all sources share; the others are in the new `sources`."""
    about = [own_fields(bank.attributes) for bank in sources]
    return {
        name: about[0][name] if len({fields[name] for fields in about}) == 1 else ""
        for name in FIELDS
    }


def _record(target: Bank, sources: Sequence[Bank], additions: Sequence[Addition]) -> None:
    """Whose deposits these are, before any is there."""
    for bank in sources:
        models = {
            a.source.checkpoint.model for a in additions if bank.path in a.source.path.parents
        }
        said = described_as(bank, models) if models else []
        fields = own_fields(target.attributes)
        add_sources(target.path, [s for s in said if own_fields(s) != fields])


def _finish(target: Bank, deposit: Deposit) -> None:
    """Seal what is complete, and score options of the other banks' prompts."""
    if deposit.complete and not deposit.sealed:
        DepositWriter(deposit, engine=deposit.spec.provenance.get("engine")).seal()
    full = deposit.layout.keep.whole_rows
    if full and (options := target.missing_options(deposit)) is not None:
        rescore(deposit, options)
