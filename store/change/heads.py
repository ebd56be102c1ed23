"""Heads that go from one bank into another, byte for byte."""

from collections.abc import Callable, Iterable
from pathlib import Path

from logitbank.errors import BankFormatError, DamagedError
from logitbank.store.change.copying import copy_checked
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.heads.put import create_head
from logitbank.store.heads.stored import FOLDER, StoredHead, head_digests


def missing_heads(into: Path | None, deposits: Iterable[Deposit]) -> list[StoredHead]:
    """The heads that these deposits need and the bank at `into` lacks, each once.

    It lacks a head too whose attributes are damaged, or that has objects of another size; other
    bytes are found by `verify`, which reads them all.

    Raises
    ------
    DamagedError
        One is not there, or its content is not what its digest says.
    """
    there = set() if into is None else set(head_digests(into))
    present: set[str] = set()
    missing: dict[str, StoredHead] = {}
    for deposit in deposits:
        for digest in set(deposit.spec.heads.values()) - present - set(missing):
            if into is not None and digest in there and _whole(into, digest):
                present.add(digest)
                continue
            missing[digest] = StoredHead.open(
                deposit.row_reader.bank, digest, needed_by=str(deposit)
            )
            missing[digest].read()
    return list(missing.values())


def copy_head(
    source: StoredHead, root: Path, copied: Callable[[int], None] = lambda _: None
) -> None:
    """Copy a head into the bank at `root`, every byte compared; nothing where it is there.

    One that is damaged there, as `missing_heads` sees it, gives way.

    Raises
    ------
    DamagedError
        A file is not what the head's attributes say.
    """

    def write(folder: Path) -> None:
        folder.mkdir()
        for name, digest in source.objects.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            at = objects.plain_path(source.path, name)
            copy_checked(at, folder / name, digest, copied=copied)
        objects.write_durable(folder / "zarr.json", (source.path / "zarr.json").read_bytes())

    there = objects.plain_path(root, f"{FOLDER}/{source.digest}")
    if there.exists() and not _whole(root, source.digest):
        objects.remove_folder(there)
    create_head(root, source.digest, write, size=source.size)


def _whole(root: Path, digest: str) -> bool:
    """Whether a head's attributes are sound and its objects there, each of its size."""
    try:
        return not StoredHead.open(root, digest).missing()
    except BankFormatError:  # of a later version
        return True
    except DamagedError:
        return False
