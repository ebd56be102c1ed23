"""Files that are downloaded, generated or computed once, for all runs of a user."""

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from logitbank.whole_files import whole_file

_KEPT_S = 90 * 24 * 3600
"""Seconds after which a remembered value is computed again."""


def user_cache(name: str) -> Path:
    """The folder of this name in `logitbank` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logitbank" / name


def offline() -> bool:
    """Whether `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` forbids the network."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in {"1", "ON", "YES", "TRUE"}


def digest_of(files: Iterable[Path]) -> str:
    """SHA-256 (hex) of the names and contents of files, in any order."""
    total = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        total.update(f"{path.name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def remembered(key: object) -> bytes | None:
    """The value that `remember` has kept for a key; None without it, or if it is old or damaged.

    The key, which is written as JSON, has everything that decides the value, except for the code
    of logitbank.
    """
    path = _file(key)
    with suppress(OSError):
        if time.time() - path.stat().st_mtime < _KEPT_S:
            data = path.read_bytes()
            if data[:32] == hashlib.sha256(data[32:]).digest():
                return data[32:]
    return None


def remember(key: object, data: bytes) -> None:
    """Keep a value for later runs, if the cache can be written, and delete old ones."""
    path = _file(key)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as part:
            part.write_bytes(hashlib.sha256(data).digest() + data)
        for other in path.parent.iterdir():
            if time.time() - other.stat().st_mtime > _KEPT_S:
                other.unlink(missing_ok=True)


def _file(key: object) -> Path:
    # Imported here: it brings polars (0.2 s), and shell completion imports this module.
    from logitbank.store.format.schema import json_digest

    own = os.environ.get("LOGITBANK_CACHE")
    folder = Path(own) / "remembered" if own else user_cache("remembered")
    return folder / json_digest([_code(), key])


@cache
def _code() -> str:
    """A digest of the engine's code, since it decides values, too."""
    return digest_of(Path(__file__).parent.rglob("*.py"))
