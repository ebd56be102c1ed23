"""The cache folder with local copies of banks at URLs."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from logitbank.errors import UsageError
from logitbank.store.files.objects import compute_digest

SOURCE = ".source.json"
"""File in a copy that contains its URL. It is ignored outside the cache folder."""


def cache_folder() -> Path:
    """`LOGITBANK_CACHE`, or the user's cache folder of this platform."""
    if folder := os.environ.get("LOGITBANK_CACHE"):
        return Path(folder).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "logitbank" / "banks"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return Path(xdg or Path.home() / ".cache") / "logitbank" / "banks"


def copy_folder(url: str) -> Path:
    """Folder of the copy of the bank at a URL."""
    return cache_folder() / compute_digest(url.encode()).sha256[:16]


def copy_source_url(path: Path | str) -> str | None:
    """URL of the bank whose copy contains this path; None for other paths."""
    cache = cache_folder()
    if not str(path).startswith(f"{cache}{os.sep}"):
        return None
    root = cache / Path(path).relative_to(cache).parts[0]
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((root / SOURCE).read_text())["url"])
    return None


def address(root: Path) -> str:
    """Address of a bank for people: the URL of a copy, or the folder."""
    return copy_source_url(root) or str(root)


def require_folder(path: Path) -> None:
    """Refuse the copy of a bank at a URL, which is incomplete and read-only, with a UsageError."""
    if (url := copy_source_url(path)) is not None:
        raise UsageError(
            f"{url} is read-only. Run `logitbank pull {url} FOLDER` and use the folder."
        )


def missing_advice(path: Path | str, otherwise: str) -> str:
    """Advice about a missing object: copy more if it is in a copy, or `otherwise`."""
    url = copy_source_url(path)
    if url is None:
        return otherwise
    more = ", rows=True" if not str(path).endswith(".parquet") else ""
    return (
        f"the local copy of {url} does not contain it. Open the bank with its model, step and"
        f" prompt set: logitbank.open({url!r}, models=…, steps=…, prompts=…{more})"
    )
