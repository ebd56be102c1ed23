"""What the workers of pytest share in a run of the tests: a folder, and what is made there once."""

import atexit
import contextlib
import fcntl
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

_FOLDER = "LOGITBANK_TEST_SHARED"
HELD = "held"
"""A pipe in the folder that the first process of the run holds open until it ends."""
T = TypeVar("T")


def share() -> None:
    """This process, and those that it starts, have the folder."""
    if _FOLDER not in os.environ:
        folder = os.environ[_FOLDER] = tempfile.mkdtemp(prefix="logitbank-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.mkfifo(f"{folder}/{HELD}")
        os.open(f"{folder}/{HELD}", os.O_RDWR)


def shared_folder() -> Path:
    share()
    return Path(os.environ[_FOLDER])


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """No other process of the run is in a block of this name."""
    with (shared_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def shared(name: str, make: Callable[[], T]) -> T:
    """What `make` returns, by whichever worker asks for this name first; others read its pickle."""
    path = shared_folder() / f"{name}.pickle"
    with locked(name):
        if not path.exists():
            path.write_bytes(pickle.dumps(make()))
    value: T = pickle.loads(path.read_bytes())
    return value
