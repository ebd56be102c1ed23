"""Heads that go from one bank into another, byte for byte."""

from collections.abc import Callable, Iterable
from pathlib import Path

from logitbank.store.change.copying import copy_checked
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.heads.put import create_head
from logitbank.store.heads.stored import StoredHead, head_digests


def missing_heads(into: Path | None, deposits: Iterable[Deposit]) -> list[StoredHead]:
    """The heads that these deposits need and the bank at `into` lacks, each once.

    Raises
    ------
    DamagedError
        One is not there, or its content is not what its digest says.
    """
    present = set() if into is None else set(head_digests(into))
    missing: dict[str, StoredHead] = {}
    for deposit in deposits:
        for digest in set(deposit.spec.heads.values()) - present - set(missing):
            root = deposit.path.parents[3]  # <bank>/<model>/<run>/<step>/<query set>
            missing[digest] = StoredHead.open(root, digest, needed_by=str(deposit))
            missing[digest].read()
    return list(missing.values())


def copy_head(
    source: StoredHead, root: Path, copied: Callable[[int], None] = lambda _: None
) -> None:
    """Copy a head into the bank at `root`, every byte compared; nothing where it is there.

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

    create_head(root, source.digest, write, size=source.size)
