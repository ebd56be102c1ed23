"""A bank at a URL, read through a partial copy of it in the cache.

The copy holds the small JSON objects and, in `.remote.json`, which other objects there are. These
are fetched when they are first read; rows of log-probabilities are read in place, by ranges. So
everything else in this package reads paths. What lies in the copy is compared with the listing, and
fetched again where it was damaged. Only folders in the cache are such copies: a `.remote.json` in a
stranger's bank means nothing.
"""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.errors import DamagedError, UsageError
from logitbank.store.files import checked, objects
from logitbank.store.files.objects import Digest
from logitbank.store.format.index import Object, part_url

if TYPE_CHECKING:
    from logitbank.store.remote.in_place import RemoteShards
    from logitbank.store.remote.remote import Remote

LOG = logging.getLogger("logitbank")
"""What was put right without being asked; the command line shows it, and Python by default."""
LISTING = ".remote.json"


@dataclass(frozen=True)
class Mirror:
    """What is known of the bank at a URL, and where its copy is."""

    root: Path
    url: str
    etags: tuple[str | None, ...]
    """ETag of the index of each part; None where there is no index."""
    listed: Mapping[str, Object]
    """Every object, without texts: those lie in the copy."""

    def remote(self, part: int = 1) -> "Remote":
        from logitbank.store.remote.remote import Remote

        return Remote.at(part_url(self.url, part))


def cache_folder() -> Path:
    """`LOGITBANK_CACHE`, else the user's cache folder of this platform."""
    if given := os.environ.get("LOGITBANK_CACHE"):
        return Path(given).absolute()
    return _users_cache(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@lru_cache(maxsize=4)  # asked for at every file that is read
def _users_cache(xdg: str | None, _home: str | None) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "logitbank" / "banks"
    return Path(xdg or Path.home() / ".cache") / "logitbank" / "banks"


def mirror_of(path: Path | str) -> Mirror | None:
    """The mirror that a path lies in; None of a local bank.

    Raises
    ------
    DamagedError
        Its listing is not what was written there.
    """
    cache = cache_folder()
    if not str(path).startswith(f"{cache}{os.sep}"):
        return None
    root = cache / Path(path).relative_to(cache).parts[0]
    try:
        stamp = checked.stamp_of(root / LISTING)
    except FileNotFoundError:
        return None
    return _load(root, stamp)


def names(folder: Path) -> list[str]:
    """Names of the files of a folder of tables, whether they have been fetched or not."""
    files = {entry.name for entry in objects.entries(folder)}
    if (mirror := mirror_of(folder)) is not None:
        prefix = f"{folder.relative_to(mirror.root).as_posix()}/"
        files |= {p.removeprefix(prefix) for p in mirror.listed if p.startswith(prefix)}
    return sorted(files)


def require_local(path: Path) -> None:
    """Refuse to write into a copy, and to look for damage in what is only a part.

    Raises
    ------
    UsageError
        The path lies in one.
    """
    if (mirror := mirror_of(path)) is not None:
        raise UsageError(
            f"{mirror.url} can only be read; run `logitbank pull {mirror.url} FOLDER` and work on"
            " the folder"
        )


def remote_shards(path: Path) -> "RemoteShards | None":
    """The shards of an array of a copy, read in place by ranges; None of a local bank's."""
    mirror = mirror_of(path)
    if mirror is None:
        return None
    from logitbank.store.remote.in_place import RemoteShards

    prefix = path.relative_to(mirror.root).as_posix()
    part = next((o.part for p, o in mirror.listed.items() if p.startswith(f"{prefix}/")), 1)
    return RemoteShards(mirror.remote(part), prefix)


@lru_cache(maxsize=16)
def _load(root: Path, _: checked.Stamp) -> Mirror:
    try:
        content = checked.document(root / LISTING)
        listed = {p: Object(Digest(s, n), None, k) for p, (n, s, k) in content["objects"].items()}
        return Mirror(root, content["url"], tuple(content["etags"]), listed)
    except (KeyError, TypeError, ValueError, AttributeError, DamagedError) as error:
        raise DamagedError(
            f"{root / LISTING} is not what was written there; open the bank at its URL again"
        ) from error
