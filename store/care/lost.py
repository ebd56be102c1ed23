"""Which tables a bank has lost, by what its deposits say of how they were made."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from logitbank.errors import BankError
from logitbank.store.deposits import places
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.tables.lost import by_extraction, lost_tables


def lost_of(root: Path) -> dict[str, str]:
    """Tables of prompts and tokens that a bank has lost, relative to it, and how one knows."""
    return lost_tables(root, _made(root))


def _made(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Query set and provenance of a deposit by an extraction, of each query set that has one.

    One says what all do: a query set is named by its tokenizer too. The last in training is opened
    first, as the likeliest to be by a version that tells, and others until one is found: 154 are
    not opened for one answer, but where none is by an extraction.
    """
    by_query_set: dict[str, list[str]] = {}
    for folder in places.deposit_folders(root):
        by_query_set.setdefault(Path(folder).name, []).append(folder)
    for folders in by_query_set.values():
        for folder in sorted(folders, key=_step, reverse=True):
            with suppress(BankError, FileNotFoundError):  # damaged: others say the same
                deposit = Deposit.open(root, folder)
                if by_extraction(made := deposit.spec.provenance):
                    yield deposit.query_set, dict(made)
                    break


def _step(folder: str) -> int:
    step = Path(folder).parent.name
    return int(step) if step.isdecimal() else -1
