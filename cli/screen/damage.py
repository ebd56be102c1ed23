"""What verifying and repairing found, in lines for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.cli.output import print_lines
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.store import Bank, Damage, Repaired


def print_damage(path: Path, damage: "Sequence[Damage]", whole: str) -> None:
    """Each damaged object, and how many there are; else `whole`."""
    print_lines(map(str, damage))
    print_lines([f"{counted(len(damage), 'damaged object')} in {path}" if damage else whole])


def print_next_steps(path: Path, damage: "Sequence[Damage]") -> None:
    """What brings back what is damaged or gone, a line for each way that is called for."""
    from logitbank.store.care.repair import can_repair, is_lost_table

    if any(map(can_repair, damage)):
        print_lines(
            [f"`logitbank verify --repair {path}` drops what is damaged; extract then fills it"]
        )
    rest = [each for each in damage if not can_repair(each)]
    if any(map(is_lost_table, rest)):
        print_lines(
            [
                "--repair brings no lost table back: the same `logitbank extract` writes it again,"
                f" and so does `logitbank merge {path} COPY` of another copy of the bank"
            ]
        )
    if any(each.problem == "foreign" for each in rest):
        print_lines(["--repair leaves what is foreign where it is; remove it yourself"])
    if any(each.problem != "foreign" and not is_lost_table(each) for each in rest):
        print_lines(
            ["--repair brings none of the rest back; take it from another copy of the bank"]
        )


def print_repaired(path: Path, done: "Repaired", left: "Sequence[Damage]") -> None:
    """What was made again or dropped, and what is damaged still."""
    from logitbank.store.care.repair import can_repair

    print_lines(f"made again: {name}" for name in done.restored)
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
    if any(map(can_repair, left)):  # as a table whose content is damaged, and so cannot be
        print_lines(["take these from another copy of the bank"])
    print_next_steps(path, [each for each in left if not can_repair(each)])


def print_unfinished(bank: "Bank", *, whole: bool) -> None:
    """Say what writers left that nobody reads, and in a whole bank what is still to be run."""
    from logitbank.store import leftovers

    for folder, names in leftovers(bank).items():
        more = f" and {counted(len(names) - 1, 'more object')}" if len(names) > 1 else ""
        print_lines(
            [
                f"not committed, or its commit is gone: {folder}/{names[0]}{more};"
                " nobody reads it, and the same extract writes it again"
            ]
        )
    if whole and (unfinished := sum(not d.complete for d in bank.deposits())):
        print_lines(
            [f"deposits with blocks still to be run: {unfinished}; `logitbank info {bank.path}`"]
        )
