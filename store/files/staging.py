"""Folders in which writers prepare objects. Those of killed writers are deleted."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logitbank.store.files import locks, objects

_PREFIX = ".staging-"


class Staging:
    """The folder of one writer, with a lock file that the writer holds; a context manager."""

    def __init__(self, deposit: Path) -> None:
        self.path = deposit / f"{_PREFIX}{uuid.uuid4().hex}"
        self.path.mkdir()
        handle = locks.try_lock(self.path / "owner", create=True)
        assert handle is not None, "a new file is locked by nobody"
        self._owner = handle

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._owner)


@contextmanager
def staging_folder(deposit: Path) -> Iterator[Path]:
    """A new staging folder in a deposit; what killed writers left there is deleted first."""
    with locks.locked(deposit / ".lock"):
        remove_dead_staging(deposit)
        staging = Staging(deposit)
    with staging as folder:
        yield folder


def any_staging(deposit: Path) -> bool:
    """Whether a writer has prepared objects, or is about to."""
    return any(deposit.glob(f"{_PREFIX}*"))


def remove_dead_staging(deposit: Path, *, keep: Staging | None = None) -> None:
    """Delete what killed writers left in a deposit. The caller holds its lock."""
    for folder in (deposit, *(each for each in deposit.glob("*") if each.is_dir())):
        with suppress(FileNotFoundError):  # a staging folder that its writer is removing
            for file in [*folder.glob(".*.json-*")]:
                file.unlink(missing_ok=True)  # the lock is held, so no live writer has it
    remove_dead_folders(deposit, keep)


def remove_dead_folders(deposit: Path, keep: Staging | None = None) -> None:
    """Delete the staging folders of killed writers. The caller holds the lock of `deposit`."""
    for folder in deposit.glob(f"{_PREFIX}*"):
        if folder.is_symlink() or (keep is not None and folder == keep.path):
            continue
        owner = folder / "owner"
        try:
            handle = locks.try_lock(owner, create=False)
        except FileNotFoundError:  # its writer was killed early, or is removing the folder
            shutil.rmtree(folder, ignore_errors=True)
            continue
        if handle is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)


def remove_dead(root: Path) -> None:
    """Delete what killed writers left anywhere in a bank; folders of live writers stay."""
    for name, folders, files in os.walk(root):
        folder = Path(name)
        if any(each.startswith(_PREFIX) for each in folders):
            with locks.locked(folder / ".lock"):
                remove_dead_folders(folder)
        for each in folders:
            if each.startswith(".gone-"):  # see `objects.remove_folder`
                shutil.rmtree(folder / each, ignore_errors=True)
        if any(each.startswith(".") for each in files):
            objects.remove_dead_files(folder)
        for each in files:
            if each in (".lock", ".index.lock"):
                locks.remove_unlocked(folder / each)
        folders[:] = [each for each in folders if not each.startswith(".")]
