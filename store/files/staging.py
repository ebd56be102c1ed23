"""Where writers prepare objects, and how what a killed writer left is told from a live one's."""

import os
import shutil
import uuid
from pathlib import Path

from logitbank.store.files import locks

_PREFIX = ".staging-"


class Staging:
    """A folder of one writer, with a lock file that is held while the writer lives."""

    def __init__(self, deposit: Path) -> None:
        self.path = deposit / f"{_PREFIX}{uuid.uuid4().hex}"
        self.path.mkdir()
        handle = locks.try_lock(self.path / "owner", create=True)
        assert handle is not None, "a new file is locked by nobody"
        self._owner = handle

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._owner)


def any_staging(deposit: Path) -> bool:
    """Whether some writer has prepared objects, or is about to."""
    return any(deposit.glob(f"{_PREFIX}*"))


def remove_dead_staging(deposit: Path, *, keep: Staging | None = None) -> None:
    """Delete what killed writers left. The caller holds the deposit's lock."""
    for file in [*deposit.glob(".*.json-*"), *deposit.glob("*/.*.json-*")]:
        file.unlink(missing_ok=True)  # made under the lock, so nobody's
    for folder in deposit.glob(f"{_PREFIX}*"):
        if folder.is_symlink() or (keep is not None and folder == keep.path):
            continue
        owner = folder / "owner"
        try:
            handle = locks.try_lock(owner, create=False)
        except FileNotFoundError:  # killed before it made the file, or just removing the folder
            shutil.rmtree(folder, ignore_errors=True)
            continue
        if handle is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)
