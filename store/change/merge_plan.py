"""Plan a merge: compare everything, and list what each source adds, before anything is copied."""

from collections.abc import Sequence
from typing import NamedTuple

from logitbank.errors import BankError
from logitbank.store.bank import Bank
from logitbank.store.deposits.deposit import Deposit, check_commit, check_metadata
from logitbank.store.format import commits
from logitbank.store.format.attributes import ARRAY, DIGESTS, compared, describe_states, unlike
from logitbank.store.format.commits import Committed
from logitbank.store.format.index import Objects
from logitbank.store.format.schema import Json
from logitbank.store.share.selection import deposit_objects


class Addition(NamedTuple):
    """Additions of one deposit of another bank."""

    source: Deposit
    folder: str
    """The deposit's folder, relative to either bank."""
    objects: Objects
    """Commits and their objects, by path in either bank."""
    unfinished: Deposit | None
    """A part of the deposit in the target, which the whole one replaces."""

    @property
    def bytes(self) -> int:
        return sum(value.digest.bytes for value in self.objects.values())


def plan(target: Bank | None, sources: Sequence[Bank]) -> list[Addition]:
    """Additions of whole deposits of each source to the target and to the sources before it.

    Raises
    ------
    BankError
        Two deposits differ in a field that must be equal.
    DamagedError
        A source differs from the format or from its commits.
    """
    stored: dict[str, list[Deposit]] = {}
    unfinished: dict[str, Deposit] = {}
    siblings: dict[str, list[Deposit]] = {}  # of one checkpoint
    for deposit in [] if target is None else target.deposits():
        folder = commits.relative_folder(deposit.path)
        siblings.setdefault(deposit.checkpoint.path, []).append(deposit)
        if deposit.sealed:
            stored[folder] = [deposit]
        elif deposit.committed():
            unfinished[folder] = deposit
    additions = []
    for bank in sources:
        for deposit in bank.deposits():
            if not deposit.sealed:
                continue
            folder = commits.relative_folder(deposit.path)
            check_metadata(deposit)
            _check_weights(deposit, siblings.setdefault(deposit.checkpoint.path, []))
            siblings[deposit.checkpoint.path].append(deposit)
            before = stored.setdefault(folder, [])
            part = unfinished.pop(folder, None)
            for other in (*before, *([part] if part else [])):
                _check_same_layout(other, deposit)
            for other in before:
                _check_equal(other, deposit)
            if addition := _addition(before, part, deposit):
                additions.append(addition)
            before.append(deposit)
    return additions


def _check_weights(deposit: Deposit, siblings: Sequence[Deposit]) -> None:
    """One checkpoint has one config and one set of weights in all its deposits."""
    for other in siblings:
        if different := unlike(other.spec.provenance, deposit.spec.provenance):
            raise _conflict(other, deposit, f"{different[0]} differ")


def _addition(
    before: Sequence[Deposit], unfinished: Deposit | None, source: Deposit
) -> Addition | None:
    state, folder = source.state(), commits.relative_folder(source.path)
    known = {name for deposit in before for name in deposit.state().options}
    options = tuple(name for name in state.options if name not in known)
    if before and not options:
        return None
    for name in state.names:
        check_commit(source, name)
    objects = deposit_objects(source, Committed(not before, frozenset(), options))
    if before:
        del objects[f"{folder}/zarr.json"]
    return Addition(source, folder, objects, unfinished)


def _check_same_layout(stored: Deposit, new: Deposit) -> None:
    """Refuse deposits whose weights, settings or layout differ, with a BankError."""
    theirs, ours = (_compared(deposit) for deposit in (stored, new))
    for name, value in ours.items():
        if theirs[name] == value:
            continue
        if name in (*DIGESTS, ARRAY):
            raise _conflict(stored, new, f"{name} differ")
        advice = " Run `logitbank shrink` on the larger bank first." if name == "keep" else ""
        raise _conflict(stored, new, f"{name} is {value}, not {theirs[name]}", advice)


def _compared(deposit: Deposit) -> dict[str, Json]:
    layout = deposit.layout
    states = describe_states(deposit.spec) if layout.keep.array == "hidden" else None
    fields = compared(deposit.spec)
    return fields | {"keep": str(layout.keep), "block_rows": layout.block_rows, "states": states}


def _conflict(stored: Deposit, new: Deposit, difference: str, advice: str = "") -> BankError:
    """The error of two deposits that cannot be merged."""
    advice = advice or (
        " Run `logitbank compare` to see how they differ, then remove one of the two folders."
    )
    return BankError(
        f"Cannot merge {new}: {difference} ({new.path} and {stored.path}). Nothing was"
        f" copied.{advice}"
    )


def _check_equal(stored: Deposit, new: Deposit) -> None:
    """Require equal bytes of all data that both deposits have; provenance may differ."""
    theirs, ours = (commits.committed_digests(d.path, d.state()) for d in (stored, new))
    for path, digest in ours.items():
        if not path.endswith("zarr.json") and theirs.get(path, digest) != digest:
            raise _conflict(stored, new, f"{path} differs")
