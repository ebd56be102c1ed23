"""Which tables a bank has lost, by what its deposits say of how they were made."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from logitbank.errors import BankError
from logitbank.store.deposits import places
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.tables.lost import lost_tables


def lost_of(root: Path) -> dict[str, str]:
    """Tables of prompts and tokens that a bank has lost, relative to it, and how one knows."""
    return lost_tables(root, _made(root))


def _made(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Query set and provenance of the deposit of each query set that comes last in training.

    It is the likeliest to be by the latest version; 154 deposits are not opened for one answer.
    """
    by_query_set: dict[str, list[str]] = {}
    for folder in places.deposit_folders(root):
        by_query_set.setdefault(Path(folder).name, []).append(folder)
    for folders in by_query_set.values():
        for folder in sorted(folders, key=_step, reverse=True):
            with suppress(BankError, FileNotFoundError):  # damaged: others say the same
                deposit = Deposit.open(root, folder)
                yield deposit.query_set, dict(deposit.spec.provenance)
                break


def _step(folder: str) -> int:
    step = Path(folder).parent.name
    return int(step) if step.isdecimal() else -1
