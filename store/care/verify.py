"""Recompute the digests of everything in a bank, and name what is not as it was."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from logitbank.errors import BankError
from logitbank.store.bank import Bank
from logitbank.store.care import run_logs
from logitbank.store.care.damage import Damage
from logitbank.store.care.listed import index_damage
from logitbank.store.care.lost import AGAIN, missing_tables
from logitbank.store.care.objects_read import Progress, Reader, document_damage
from logitbank.store.care.verify_deposits import deposit_damage
from logitbank.store.care.verify_heads import head_damage
from logitbank.store.care.verify_tables import table_damage
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import copies, objects
from logitbank.store.format import index, zarrays
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.format.heads import HEAD_DIGEST
from logitbank.store.heads.stored import FOLDER
from logitbank.store.tables import query_tables

_BESIDE = (index.NAME, "README.md")
"""Files of the bank's own folder: the index for readers at a URL, and what tells people of it."""


def verify(bank: Bank | str | Path, *, progress: Progress | None = None) -> tuple[Damage, ...]:
    """Find damage in a bank, and change nothing.

    Every byte of every object that belongs to the bank is read once.

    A checkpoint whose whole folder was removed is missed only where an `index.json.gz` lies in the
    bank's folder, as in a pushed one: nothing else lists the checkpoints.

    Parameters
    ----------
    bank
        The bank or its folder; it may be written to meanwhile.
    progress
        Called before each object is read.

    Returns
    -------
    What is missing, truncated, changed, swapped with another object, unreadable, or in the bank
    without belonging there; none in a sound bank.

    Raises
    ------
    UsageError
        The bank is at a URL: pull it first.
    BankError
        The folder is no bank.
    """
    if not isinstance(bank, Bank):
        bank = Bank.open(bank, prompts=[])
    bank.require_unfiltered()
    copies.require_folder(bank.path)
    read = Reader(bank, progress)
    folders = catalog.deposit_folders(bank.path)
    needed = {Path(folder).name: folder for folder in folders}
    damage = [
        *document_damage(bank.path, "zarr.json", read),
        *table_damage(bank.path, read, needed),
    ]
    for name, by in sorted(needed.items()):
        if not query_tables.query_file(bank.path, name).exists():
            damage.append(
                Damage(f"queries/{name}.parquet", "missing", f"{by} is about its queries")
            )
    known = {each.path for each in damage}
    damage += [
        Damage(path, "missing", f"{how}; {AGAIN}")
        for path, how in _missing_tables(bank.path, folders).items()
        if path not in known
    ]
    damage += _above_deposits(bank.path)
    damage += _run_logs(bank.path, read)
    damage += _groups(bank.path, folders, read)
    damage += head_damage(bank.path, read)
    for folder in folders:
        damage += deposit_damage(bank, folder, read)
    damage += index_damage(bank.path, read, {each.path for each in damage})
    return tuple(damage)


def _missing_tables(root: Path, folders: Iterable[str]) -> dict[str, str]:
    missing: dict[str, str] = {}
    for folder in folders:
        with suppress(BankError, FileNotFoundError):  # what `deposit_damage` names
            missing |= missing_tables(root, [Deposit.open(root, folder)])
    return missing


def _groups(root: Path, folders: list[str], read: Reader) -> Iterator[Damage]:
    """Damage of the plain groups above deposits, which nobody needs but a walk with plain Zarr."""
    above = {str(p) for folder in folders for p in list(Path(folder).parents)[:-1]} | {FOLDER}
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
        elif folder == f"{FOLDER}/" and HEAD_DIGEST.fullmatch(entry.name):
            continue  # see `head_damage`
        elif level or entry.name not in catalog.TABLE_FOLDERS:
            yield from _above_deposits(root, f"{path}/", level + 1)


def _run_logs(root: Path, read: Reader) -> Iterator[Damage]:
    """Damage of the logs of runs; a run may be writing one."""
    for entry in objects.entries(root / run_logs.FOLDER):
        if run_logs.NAME.fullmatch(entry.name) and entry.is_file():
            path = f"{run_logs.FOLDER}/{entry.name}"
            if problem := run_logs.damage(read.read(path, objects.plain_path(root, path))):
                yield Damage(path, "changed", problem)
