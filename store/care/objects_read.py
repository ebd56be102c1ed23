"""Objects of a bank as verification reads them: whole, and once."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from logitbank.errors import BankError
from logitbank.store.bank import Bank
from logitbank.store.care.damage import Damage, Problem
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import documents, objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits

Progress = Callable[[str, int, int], None]
"""Called with the path of an object, and the bytes read before it and in all."""


class Reader:
    """Counts the bytes that are read."""

    def __init__(self, bank: Bank, progress: Progress | None) -> None:
        self._progress, self._done = progress, 0
        self._total = total_bytes(bank) if progress is not None else 0

    def read(self, where: str, path: Path) -> bytes:
        self._say(where)
        data = path.read_bytes()
        self._done += len(data)
        return data

    def digest(self, where: str, path: Path) -> Digest:
        self._say(where)
        value = objects.digest(path)
        self._done += value.bytes
        return value

    def _say(self, where: str) -> None:
        if self._progress is not None:
            self._progress(where, self._done, max(self._total, self._done))


def total_bytes(bank: Bank) -> int:
    """Bytes of the objects that commits vouch for; the others are small."""
    total = 0
    for folder in catalog.deposit_folders(bank.path):
        try:
            deposit = Deposit.open(bank.path, folder)
            for name in deposit.state().names:
                total += sum(d.bytes for d in commits.digests(deposit.path, name).values())
        except (BankError, FileNotFoundError):
            continue
    return total


def compare(committed: Digest, actual: Digest | None) -> tuple[Problem, str] | None:
    """What is wrong with an object by its digest, None where it is not there; None if nothing."""
    if actual is None:
        return "missing", f"{committed.bytes:,} bytes were committed"
    if actual.bytes != committed.bytes:
        problem: Problem = "truncated" if actual.bytes < committed.bytes else "changed"
        return problem, f"{actual.bytes:,} bytes, committed were {committed.bytes:,}"
    if actual != committed:
        return "changed", "its SHA-256 is not the committed one"
    return None


def document_damage(
    root: Path, path: str, read: Reader, deposit: str = "", block: int | None = None
) -> Iterator[Damage]:
    """Damage of a JSON document that has its own digest."""
    try:
        file = objects.plain_path(root, path)
        objects.require_file(file)  # a reader of a pipe would wait for ever
        data = read.read(path, file)
    except FileNotFoundError:
        return
    except BankError as error:
        yield Damage(path, "unreadable", str(error), deposit, block)
        return
    problem = ""
    try:
        document: Any = json.loads(data)
        signed_part = (
            document["attributes"]["logitbank"] if path.endswith("zarr.json") else document
        )
        if not documents.is_signed(data, document, signed_part):
            problem = "its SHA-256 is not the one that it tells of itself"
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        problem = f"it is no such document: {error!r}"
    if problem:
        yield Damage(path, "changed", problem, deposit, block)
