"""The command `verify`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from logitbank.cli.options import BankPath
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.store import Bank, Damage


def verify(
    bank: BankPath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop damaged blocks, so that extract fills them.")
    ] = False,
) -> None:
    """Recompute the digests of a bank or view; name what is damaged or missing, and where."""
    from logitbank.cli.screen.progress import byte_progress
    from logitbank.cli.screen.tables import print_lines
    from logitbank.store import Bank
    from logitbank.store import verify as find_damage
    from logitbank.store.care.verify_view import is_view
    from logitbank.store.remote.urls import url_of

    if url_of(bank) is None and is_view(bank):
        _verify_view(bank, repair=repair)
    opened = Bank.open(bank)
    with byte_progress("verifying") as bar:
        damage = find_damage(opened, progress=bar.about)
    print_lines(map(str, damage))
    print_lines([_verdict(bank, damage) or f"{bank} is whole"])
    if damage and repair:
        damage = _repair(opened, damage)
    elif damage:
        print_lines(
            [f"`logitbank verify --repair {bank}` drops what is damaged; extract then fills it"]
        )
    _print_unfinished(opened, whole=not damage)
    raise typer.Exit(1 if damage else 0)


def _verdict(path: Path, damage: "Sequence[Damage]") -> str:
    return f"{counted(len(damage), 'damaged object')} in {path}" if damage else ""


def _repair(bank: "Bank", damage: "tuple[Damage, ...]") -> "tuple[Damage, ...]":
    """Repair a bank, say what was done, and return what is damaged still."""
    from logitbank.cli.screen.progress import byte_progress
    from logitbank.cli.screen.tables import print_lines
    from logitbank.store import repair, verify

    done = repair(bank, damage)
    print_lines(f"made again: {name}" for name in done.restored)
    print_lines(
        f"dropped: {counted(len(blocks), 'block')} of {folder}"
        for folder, blocks in done.dropped.items()
    )
    with byte_progress("verifying again") as bar:
        left = verify(bank, progress=bar.about)
    print_lines(f"still damaged: {each.path}" for each in left)
    if left:
        print_lines(["take these from another copy of the bank"])
    return left


def _print_unfinished(bank: "Bank", *, whole: bool) -> None:
    """Say what writers left that nobody reads, and in a whole bank what is still to be run."""
    from logitbank.cli.screen.tables import print_lines
    from logitbank.store import leftovers

    for folder, names in leftovers(bank).items():
        more = f" and {counted(len(names) - 1, 'more object')}" if len(names) > 1 else ""
        print_lines(
            [
                f"not committed, or its commit or table is gone: {folder}/{names[0]}{more};"
                " nobody reads it, and the same extract writes it again"
            ]
        )
    if whole and (unfinished := sum(not d.complete for d in bank.deposits())):
        print_lines(
            [f"deposits with blocks still to be run: {unfinished}; `logitbank info {bank.path}`"]
        )


def _verify_view(path: Path, *, repair: bool) -> NoReturn:
    """Print the damage in a view, and exit."""
    from logitbank.cli.screen.tables import print_lines
    from logitbank.errors import UsageError
    from logitbank.store import verify
    from logitbank.store.filter.view_files import ViewDocument, bank_of

    if repair:
        raise UsageError(
            f"{path} is a view, which is not repaired but made again with `logitbank debias apply`"
        )
    damage = verify(path)
    print_lines(map(str, damage))
    if damage:
        print_lines([_verdict(path, damage)])
        raise typer.Exit(1)
    bank = bank_of(path, ViewDocument.read(path))
    print_lines(
        [f"{path} is whole, a view of {bank}; `logitbank verify {bank}` looks at what is in that"]
    )
    raise typer.Exit(0)
