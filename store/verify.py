"""Recompute the digests of everything committed, and name what is not as it was."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from logitbank.errors import BankError, DamagedError, LogitbankError
from logitbank.store import commits, objects, places, tables, zarrays
from logitbank.store.bank import Bank
from logitbank.store.commits import Committed
from logitbank.store.deposit import Deposit
from logitbank.store.objects import Digest

# Commits themselves, and what a writer makes before it commits or removes after it sealed.
_LEFT_OVER = re.compile(
    r"zarr\.json|commits/(seal|\d+|options-[0-9a-f]{12})\.json"
    r"|scores/(all|\d+|options-[0-9a-f]{12})\.parquet|logprobs/c/\d+/0|logsumexp/c/0"
)
Problem = Literal["missing", "truncated", "changed", "swapped", "foreign", "unreadable"]


@dataclass(frozen=True, slots=True)
class Damage:
    """One object that is not what was committed."""

    path: str
    """Relative to the bank."""
    problem: Problem
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem} ({self.detail})"


def verify(bank: Bank, *, progress: Callable[[str], None] | None = None) -> tuple[Damage, ...]:
    """Find damage in a bank, and change nothing.

    Parameters
    ----------
    bank
        The bank; it may be written to meanwhile.
    progress
        Called with the path of each object before it is read.

    Returns
    -------
    What is missing, truncated, changed, swapped with another object, unreadable, or in a deposit
    without being committed or left by a killed writer; none in a sound bank.
    """
    say = progress or (lambda _: None)
    found = [*_tables(bank.path, say)]
    for folder in places.deposit_folders(bank.path):
        try:
            deposit = Deposit.open(bank.path, folder)
        except FileNotFoundError:
            continue
        except BankError as error:
            found.append(Damage(f"{folder}/zarr.json", "unreadable", str(error)))
            continue
        try:
            found += _deposit(deposit, folder, say)
        except BankError as error:  # a symbolic link, or commits that are no commits
            found.append(Damage(folder, "foreign", str(error)))
    return tuple(found)


def _tables(root: Path, say: Callable[[str], None]) -> list[Damage]:
    found = [
        Damage(f"{folder}/{entry.name}", "foreign", "it is no table of a bank")
        for folder, pattern in (("queries", tables.QUERY_FILE), ("prompts", tables.PROMPT_FILE))
        for entry in objects.entries(root / folder)
        if not pattern.fullmatch(entry.name)
    ]
    for name in tables.query_set_names(root):
        path = f"queries/{name}.parquet"
        say(path)
        try:
            tables.read_query_set(root, name)
        except LogitbankError as error:
            found.append(Damage(path, "changed", str(error)))
    for file in tables.prompt_files(root):
        path = f"prompts/{file.path.name}"
        say(path)
        try:
            digest = tables.prompts_digest(pl.read_parquet(file.path, glob=False))
        except (pl.exceptions.PolarsError, OSError, ValueError, TypeError) as error:
            found.append(Damage(path, "unreadable", str(error)))
            continue
        if digest != file.digest:
            found.append(Damage(path, "changed", f"its content has the digest {digest}"))
    return found


def _deposit(deposit: Deposit, folder: str, say: Callable[[str], None]) -> list[Damage]:
    state = deposit.state()
    found, expected = _expected(deposit, folder, state)
    actual: dict[str, Digest] = {}
    for path in expected:
        say(f"{folder}/{path}")
        if (file := objects.plain_path(deposit.path, path)).is_file():
            actual[path] = objects.digest(file)
    owners = {digest.sha256: path for path, digest in expected.items()}
    for path, digest in expected.items():
        if damage := _compare(folder, path, digest, actual.get(path), owners):
            found.append(damage)
    found += [
        Damage(f"{folder}/{path}", "foreign", "no commit names it, and no writer makes such a file")
        for path in _files(deposit.path)
        if path not in expected and not _LEFT_OVER.fullmatch(path)
    ]
    if deposit.state().sealed != state.sealed:  # sealed meanwhile: what we looked for moved
        return _deposit(deposit, folder, say)
    return found


def _expected(
    deposit: Deposit, folder: str, state: Committed
) -> tuple[list[Damage], dict[str, Digest]]:
    """Digests that the commits name; commits that cannot be read."""
    found: list[Damage] = []
    arrays = zarrays.array_metadata(deposit.layout)
    expected = {
        f"{name}/zarr.json": objects.digest_of(data)
        for name, data in arrays.items()
        if state.names or (deposit.path / name / "zarr.json").exists()  # first commit comes later
    }
    for name in state.names:
        try:
            expected |= commits.digests(deposit.path, name)
        except FileNotFoundError:  # sealed meanwhile
            continue
        except DamagedError as error:
            found.append(Damage(f"{folder}/commits/{name}.json", "unreadable", str(error)))
    return found, expected


def _compare(
    folder: str, path: str, expected: Digest, actual: Digest | None, owners: dict[str, str]
) -> Damage | None:
    where = f"{folder}/{path}"
    if actual is None:
        return Damage(where, "missing", f"{expected.bytes:,} bytes were committed")
    if actual == expected:
        return None
    if actual.sha256 in owners:
        return Damage(where, "swapped", f"it holds the bytes of {owners[actual.sha256]}")
    if actual.bytes != expected.bytes:
        sizes = f"{actual.bytes:,} bytes, committed were {expected.bytes:,}"
        return Damage(where, "truncated" if actual.bytes < expected.bytes else "changed", sizes)
    return Damage(where, "changed", "its SHA-256 is not the committed one")


def _files(deposit: Path, folder: str = "") -> list[str]:
    """Files of a deposit, relative to it, but for hidden ones: locks and staging."""
    files: list[str] = []
    for entry in objects.entries(deposit / folder):
        path = f"{folder}{entry.name}"
        files += _files(deposit, f"{path}/") if entry.is_dir() else [path]
    return files
