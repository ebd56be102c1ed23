"""Lines that `verify` and `verify --repair` print."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.cli.output import print_lines
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.store import Bank, Damage, Repaired


def print_damage(path: Path, damage: "Sequence[Damage]", whole: str) -> None:
    """Print each damaged object and their number, or else `whole`."""
    print_lines(map(str, damage))
    print_lines([f"{counted(len(damage), 'damaged object')} in {path}" if damage else whole])


def print_next_steps(path: Path, damage: "Sequence[Damage]", *, repaired: bool = False) -> None:
    """What to do about the damage: one line for each remedy, with the objects that it is for."""
    from logitbank.store.care.damage import Remedy

    kinds: dict[Remedy, set[str]] = {remedy: set() for remedy in Remedy}
    for each in damage:
        kinds[each.remedy_after_repair if repaired else each.remedy].add(each.check.kind)
    print_lines(
        f"{', '.join(sorted(names))}: {remedy.format(bank=path)}"
        for remedy, names in kinds.items()
        if names
    )


def print_repaired(path: Path, done: "Repaired", left: "Sequence[Damage]") -> None:
    """Print what was written again or dropped, and what is still damaged."""
    print_lines(f"written again: {name}" for name in done.restored)
    print_lines(
        f"dropped: {counted(len(blocks), 'block')} of {folder}"
        for folder, blocks in done.dropped.items()
    )
    if any(each.path in done.dropped for each in left):
        print_lines(
            [
                "index.json.gz still lists what was dropped: the same `logitbank extract` runs it"
                " again"
            ]
        )
    left = [each for each in left if each.path not in done.dropped]
    print_lines(f"still damaged: {each.path}" for each in left)
    print_next_steps(path, left, repaired=True)


def print_unfinished(bank: "Bank", *, whole: bool) -> None:
    """Print what killed writers left, and in a whole bank the deposits that are not complete."""
    from logitbank.store import leftovers

    for folder, names in leftovers(bank).items():
        more = f" and {counted(len(names) - 1, 'more object')}" if len(names) > 1 else ""
        print_lines(
            [
                f"not committed, or the commit is missing: {folder}/{names[0]}{more}."
                " Readers ignore it; the same `logitbank extract` writes it again."
            ]
        )
    if whole and (unfinished := sum(not d.complete for d in bank.deposits())):
        print_lines(
            [f"deposits that are not complete: {unfinished}; see `logitbank info {bank.path}`"]
        )
