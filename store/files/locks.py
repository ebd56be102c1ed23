"""File locks, which end with the process that holds them."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from logitbank.errors import BankError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of the file `path`, which exists only while it is held."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            _flock(handle, path)
            # The previous holder may have removed the file, which is then no longer the lock.
            if is_current(handle, path):
                try:
                    yield
                finally:
                    if is_current(handle, path):  # its folder may have been moved
                        path.unlink(missing_ok=True)
                return
        finally:
            os.close(handle)


def _flock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise BankError(
            f"The file system of {path.parent} has no file locks ({error.strerror}). Write the bank"
            " to one that has them (on Lustre: mount option flock) and copy it afterwards."
        ) from error


def is_current(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def try_lock(path: Path, *, create: bool) -> int | None:
    """Lock the file without waiting: a handle to close, or None if another process holds it."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def remove_unlocked(path: Path) -> None:
    """Delete a file that its killed writer had locked; the locked file of a live one stays."""
    with suppress(OSError):  # it is gone, or the file system has no locks
        if (handle := try_lock(path, create=False)) is not None:
            try:
                if is_current(handle, path):
                    path.unlink()
            finally:
                os.close(handle)
