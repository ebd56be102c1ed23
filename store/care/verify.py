"""Recompute the digests of everything in a bank, and name what is not as it was."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.errors import BankError, DamagedError, LogitbankError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.care import run_logs
from logitbank.store.care.damage import Damage, Problem
from logitbank.store.care.verify_view import is_view, view_damage
from logitbank.store.change.merge_plan import commit_of
from logitbank.store.deposits import places, tables
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import documents, objects
from logitbank.store.files.objects import Digest
from logitbank.store.filter.view import View
from logitbank.store.format import commits, zarrays
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.format.commits import Committed
from logitbank.store.format.parquet import PARQUET_ERRORS
from logitbank.store.remote import mirror
from logitbank.store.remote.urls import url_of

# Commits themselves, and what a writer makes before it commits or removes after it sealed.
_LEFT_OVER = re.compile(
    r"zarr\.json|commits/(seal|\d+|options-[0-9a-f]{12})\.json"
    r"|scores/(all|\d+|options-[0-9a-f]{12})\.parquet|logprobs/c/\d+/0|logsumexp/c/0"
)
_OF_BLOCK = re.compile(r"(?:scores/(\d+)\.parquet|commits/(\d+)\.json|logprobs/c/(\d+)/0)")
_BESIDE = ("index.json", "README.md")
"""In the bank's own folder: for readers at a URL, and the Hub's card."""
Progress = Callable[[str, int, int], None]
"""Called with the path of an object, and the bytes read before it and in all."""


def verify(
    bank: Bank | View | str | Path, *, progress: Progress | None = None
) -> tuple[Damage, ...]:
    """Find damage in a bank or a view, and change nothing.

    Every byte of every object that belongs to the bank is read once. Of a view that is its two
    files, and whether its bank is the one that it was made of; verify that bank by itself.

    Parameters
    ----------
    bank
        The bank or its folder; it may be written to meanwhile. Or a view or its folder.
    progress
        Called before each object is read.

    Returns
    -------
    What is missing, truncated, changed, swapped with another object, unreadable, or in the bank
    without belonging there; none in a sound bank.

    Raises
    ------
    UsageError
        The bank is at a URL: pull it first. Or the view was never saved, so it has no files.
    BankError
        The folder is neither.
    """
    if isinstance(bank, View):
        if bank.folder is None:
            raise UsageError(
                f"{bank.name!r} was not saved, so it has no files; verify its bank, {bank.path}"
            )
        return view_damage(bank.folder)
    if not isinstance(bank, Bank):
        if url_of(bank) is None and is_view(Path(bank)):
            return view_damage(Path(bank))
        bank = Bank.open(bank)
    mirror.require_own(bank.path)
    read = _Reader(bank, progress)
    folders = places.deposit_folders(bank.path)
    needed = {Path(folder).name: folder for folder in folders}
    found = [*_document(bank.path, "zarr.json", read), *_tables(bank.path, read, needed)]
    for name, by in sorted(needed.items()):
        if not tables.query_file(bank.path, name).exists():
            found.append(Damage(f"queries/{name}.parquet", "missing", f"{by} is about its queries"))
    found += _above_deposits(bank.path)
    found += _run_logs(bank.path, read)
    found += _groups(bank.path, folders, read)
    for folder in folders:
        found += _deposit_damage(bank, folder, read)
    return tuple(found)


class _Reader:
    """Counts the bytes that are read."""

    def __init__(self, bank: Bank, progress: Progress | None) -> None:
        self._progress, self._done = progress, 0
        self._total = _total_bytes(bank) if progress is not None else 0

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


def _total_bytes(bank: Bank) -> int:
    """Of the objects that commits vouch for; the others are small."""
    total = 0
    for folder in places.deposit_folders(bank.path):
        try:
            deposit = Deposit.open(bank.path, folder)
            for name in deposit.state().names:
                total += sum(d.bytes for d in commits.digests(deposit.path, name).values())
        except (BankError, FileNotFoundError):
            continue
    return total


def _document(
    root: Path, path: str, read: _Reader, deposit: str = "", block: int | None = None
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
        own = document["attributes"]["logitbank"] if path.endswith("zarr.json") else document
        if not documents.is_signed(data, document, own):
            problem = "its SHA-256 is not the one that it tells of itself"
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        problem = f"it is no such document: {error!r}"
    if problem:
        yield Damage(path, "changed", problem, deposit, block)


def _groups(root: Path, folders: list[str], read: _Reader) -> Iterator[Damage]:
    """Damage of the plain groups above deposits, which nobody needs but a walk with plain Zarr."""
    above = {str(p) for folder in folders for p in list(Path(folder).parents)[:-1]}
    for path in sorted(f"{folder}/zarr.json" for folder in above):
        file = objects.plain_path(root, path)
        if file.is_file() and read.read(path, file) != zarrays.GROUP:
            yield Damage(path, "changed", "it is no plain group")


def _above_deposits(root: Path, folder: str = "", level: int = 0) -> Iterator[Damage]:
    """What no bank has outside its deposits and tables."""
    for entry in objects.entries(root / folder):
        path = f"{folder}{entry.name}"
        if not entry.is_dir():
            log = folder == f"{run_logs.FOLDER}/" and run_logs.NAME.fullmatch(entry.name)
            if entry.name != "zarr.json" and not (level == 0 and entry.name in _BESIDE) and not log:
                yield Damage(path, "foreign", "a bank has no such file")
        elif level == 3:
            if not QUERY_SET.fullmatch(entry.name):
                yield Damage(path, "foreign", "it is not named as a deposit is")
        elif level or entry.name not in places.TABLE_FOLDERS:
            yield from _above_deposits(root, f"{path}/", level + 1)


def _run_logs(root: Path, read: _Reader) -> Iterator[Damage]:
    """Damage of the logs of runs; a run may be writing one."""
    for entry in objects.entries(root / run_logs.FOLDER):
        if run_logs.NAME.fullmatch(entry.name) and entry.is_file():
            path = f"{run_logs.FOLDER}/{entry.name}"
            if problem := run_logs.damage(read.read(path, objects.plain_path(root, path))):
                yield Damage(path, "changed", problem)


def _tables(root: Path, read: _Reader, needed: dict[str, str]) -> Iterator[Damage]:
    """Damage of tables; adds to `needed` the query sets that prompts point to."""
    for folder, pattern in (("queries", tables.QUERY_FILE), ("prompts", tables.PROMPT_FILE)):
        for entry in objects.entries(root / folder):
            name = entry.name.removesuffix(".sha256")
            if not pattern.fullmatch(name) or not entry.is_file():
                yield Damage(f"{folder}/{entry.name}", "foreign", "it is no table of a bank")
            elif name == entry.name:
                yield from _table(root, f"{folder}/{name}", read, needed)


def _table(root: Path, path: str, read: _Reader, needed: dict[str, str]) -> Iterator[Damage]:
    """Damage of one table: its bytes are what the sidecar says, its content what its name says.

    The bytes first: some flipped ones make a reader of Parquet ask for more memory than there is.
    """
    file = objects.plain_path(root, path)
    digest = read.digest(path, file).sha256
    beside = tables.digest_file(file)
    where = f"{path}.sha256"
    if not beside.is_file():
        yield Damage(where, "missing", "every table has its digest beside it")
        return
    read.read(where, beside)
    try:
        told = tables.told_beside(file)
    except DamagedError:
        yield Damage(where, "unreadable", "it is no line of sha256sum for that table")
        return
    if told != digest:
        yield Damage(path, "changed", f"either it or {where} is another: its SHA-256 is {digest}")
    else:
        try:
            if file.parent.name == "queries":
                tables.query_set_in(file)
            else:
                table = tables.prompts_in(file)
                for name in table.get_column("query_set", default=pl.Series([])).unique():
                    if QUERY_SET.fullmatch(str(name)):
                        needed.setdefault(name, path)
        except DamagedError as error:
            yield Damage(path, "changed", str(error))


def _deposit_damage(bank: Bank, folder: str, read: _Reader) -> list[Damage]:
    try:
        deposit = Deposit.open(bank.path, folder)
    except FileNotFoundError:
        return _orphans(bank.path, folder)
    except BankError as error:
        changed = _document(bank.path, f"{folder}/zarr.json", read, folder)
        return [*changed] or [Damage(f"{folder}/zarr.json", "unreadable", str(error), folder)]
    try:
        found = _deposit(bank.path, deposit, folder, read)
    except BankError as error:  # a symbolic link, or commits that are no commits
        return [Damage(folder, "foreign", str(error), folder)]
    return [_with_concerns(bank, deposit, damage) for damage in found]


def _orphans(root: Path, folder: str) -> list[Damage]:
    """Files of a deposit without attributes, which its writer makes first."""
    files = files_of(root / folder)
    if not files or (root / folder / "zarr.json").exists():  # somebody is making it
        return []
    detail = f"nothing says what {len(files):,} files there are of"
    return [Damage(f"{folder}/zarr.json", "missing", detail, folder)]


def _deposit(root: Path, deposit: Deposit, folder: str, read: _Reader) -> list[Damage]:
    state = deposit.state()
    found, expected = _expected(root, deposit, folder, state, read)
    actual: dict[str, Digest] = {}
    for path in expected:
        if (file := objects.plain_path(deposit.path, path)).is_file():
            actual[path] = read.digest(f"{folder}/{path}", file)
    owners = {digest.sha256: path for path, digest in expected.items()}
    for path, digest in expected.items():
        if damage := _compare(folder, path, digest, actual.get(path), owners):
            found.append(damage)
    strange = "no commit names it, and no writer makes such a file"
    found += [
        Damage(f"{folder}/{path}", "foreign", strange, folder)
        for path in files_of(deposit.path)
        if path not in expected and not _LEFT_OVER.fullmatch(path)
    ]
    if deposit.state().sealed != state.sealed:  # sealed meanwhile: what we looked for moved
        return _deposit(root, deposit, folder, read)
    return found


def _expected(
    root: Path, deposit: Deposit, folder: str, state: Committed, read: _Reader
) -> tuple[list[Damage], dict[str, Digest]]:
    """Digests that the commits name; commits and attributes that are not as they were."""
    found = [*_document(root, f"{folder}/zarr.json", read, folder)]
    arrays = zarrays.array_metadata(deposit.layout)
    expected = {
        f"{name}/zarr.json": objects.digest_of(data)
        for name, data in arrays.items()
        if state.names or (deposit.path / name / "zarr.json").exists()  # first commit comes later
    }
    for name in state.names:
        path = f"{folder}/commits/{name}.json"
        try:
            listed = commits.digests(deposit.path, name)
            for object_ in listed:
                objects.plain_path(deposit.path, object_)
            commit_of(deposit, name)
        except FileNotFoundError:  # sealed meanwhile
            continue
        except DamagedError as error:
            found.append(
                Damage(path, "unreadable", str(error), folder, _block(f"commits/{name}.json"))
            )
            continue
        expected |= listed
        found += _document(root, path, read, folder, _block(f"commits/{name}.json"))
    return found, expected


def _compare(
    folder: str, path: str, expected: Digest, actual: Digest | None, owners: dict[str, str]
) -> Damage | None:
    if actual == expected:
        return None
    problem: Problem = "changed"
    detail = "its SHA-256 is not the committed one"
    if actual is None:
        problem, detail = "missing", f"{expected.bytes:,} bytes were committed"
    elif actual.sha256 in owners:
        problem, detail = "swapped", f"it holds the bytes of {owners[actual.sha256]}"
    elif actual.bytes != expected.bytes:
        problem = "truncated" if actual.bytes < expected.bytes else "changed"
        detail = f"{actual.bytes:,} bytes, committed were {expected.bytes:,}"
    return Damage(f"{folder}/{path}", problem, detail, folder, _block(path))


def _block(path: str) -> int | None:
    match = _OF_BLOCK.fullmatch(path)
    return int(next(filter(None, match.groups()))) if match else None


def _with_concerns(bank: Bank, deposit: Deposit, damage: Damage) -> Damage:
    """With the checkpoint, and the prompts whose queries are in the block."""
    rows = range(deposit.layout.queries)
    if damage.block is not None and damage.block < deposit.layout.blocks:
        rows = deposit.layout.rows(damage.block)
    here = (pl.col("query_set") == deposit.query_set) & pl.col("row").is_between(
        rows.start, rows.stop - 1
    )
    named = [str(deposit.checkpoint)]
    try:
        for name in bank.prompt_sets():
            ids = bank.prompts(name).filter(here).select("prompt_id").unique().sort("prompt_id")
            if len(found := ids.collect()["prompt_id"]):
                named.append(f"{len(found):,} prompts of {name!r} ({found[0]} to {found[-1]})")
    except (LogitbankError, *PARQUET_ERRORS, OSError):
        named.append("prompts that cannot be read")
    return Damage(
        *(damage.path, damage.problem, damage.detail, damage.deposit, damage.block),
        ", ".join(named),
    )


def files_of(deposit: Path, folder: str = "") -> list[str]:
    """Files of a deposit, relative to it, but for hidden ones: locks and staging."""
    files: list[str] = []
    for entry in objects.entries(deposit / folder):
        path = f"{folder}{entry.name}"
        files += files_of(deposit, f"{path}/") if entry.is_dir() else [path]
    return files
