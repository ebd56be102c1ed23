"""The command `verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import logitbank
from logitbank.cli.options import BankPath

if TYPE_CHECKING:
    from logitbank.store import Damage


def verify(
    bank: BankPath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop damaged blocks, so that extract fills them.")
    ] = False,
) -> None:
    """Check every digest of a bank, and list what is damaged or missing."""
    raise typer.Exit(1 if _verify_bank(bank, repair=repair) else 0)


def _verify_bank(path: Path, *, repair: bool) -> "tuple[Damage, ...]":
    """Print the damage in a bank and, where asked to, drop it; give back what is left."""
    from logitbank.cli.screen.damage import (
        print_damage,
        print_next_steps,
        print_repaired,
        print_unfinished,
    )
    from logitbank.cli.screen.progress import byte_progress
    from logitbank.store import Bank
    from logitbank.store import repair as repaired

    bank = Bank.open(path, prompts=[])
    with byte_progress("verifying") as bar:
        damage = logitbank.verify(bank, progress=bar.about)
    print_damage(path, damage, whole=f"{path} is whole")
    done = repaired(bank, damage) if repair else None
    if damage and done is not None:
        with byte_progress("verifying again") as bar:
            damage = logitbank.verify(bank, progress=bar.about)
        print_repaired(path, done, damage)
    else:
        print_next_steps(path, damage)
    print_unfinished(bank, whole=not damage)
    return damage
