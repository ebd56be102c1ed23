"""A bank at a URL, read through a partial copy of it in the cache.

The copy holds the small JSON objects and, in `.remote.json`, which other objects there are. These
are fetched when they are first read; rows of log-probabilities are read in place, by ranges. So
everything else in this package reads paths. What lies in the copy is compared with the listing, and
fetched again where it was damaged. Only folders in the cache are such copies: a `.remote.json` in a
stranger's bank means nothing.
"""

import logging
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.errors import BankFormatError, DamagedError, RemoteError, UsageError
from logitbank.store.files import checked, documents, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import TEXT, Object, is_object, part_url

if TYPE_CHECKING:
    from logitbank.store.remote.in_place import RemoteShards
    from logitbank.store.remote.remote import Remote, Say

LOG = logging.getLogger("logitbank")
"""What was put right without being asked; the command line shows it, and Python by default."""
_LISTING = ".remote.json"
_SYNCED_AT_ONCE = 32
"""Small files that are made durable at once; one after the other, 1,400 take five times as long."""


@dataclass(frozen=True)
class Mirror:
    """What is known of the bank at a URL, and where its copy is."""

    root: Path
    url: str
    etags: tuple[str | None, ...]
    """Of the index of each part; None where there is no index."""
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


def mirror_of(path: Path) -> Mirror | None:
    """The mirror that a path lies in; None of a local bank.

    Raises
    ------
    DamagedError
        Its listing is not what was written there.
    """
    cache = cache_folder()
    if not str(path).startswith(f"{cache}{os.sep}"):
        return None
    root = cache / path.relative_to(cache).parts[0]
    try:
        stamp = checked.stamp_of(root / _LISTING)
    except FileNotFoundError:
        return None
    return _load(root, stamp)


def ensure_here(*paths: Path) -> None:
    """Fetch those of these objects of one bank that its copy lacks, or has other bytes of.

    A local bank pays nothing. What is not in the bank either stays absent.

    Raises
    ------
    RemoteError
        The place does not give an object, or gives other bytes than it lists.
    """
    mirror = mirror_of(paths[0]) if paths else None
    if mirror is None:
        return
    present = [path for path in paths if path.exists()]
    absent = [path for path in paths if not path.exists()]
    _fetch(mirror, [path.relative_to(mirror.root).as_posix() for path in absent])
    if _damaged(mirror, present):
        with locks.locked(mirror.root / ".lock"):  # another process may bring it up to date
            mirror = mirror_of(mirror.root) or mirror
        _fetch_again(mirror, _damaged(mirror, present))


def _damaged(mirror: Mirror, paths: Iterable[Path]) -> list[str]:
    """Those of these files in a copy that are not what is listed."""
    listed = {path: path.relative_to(mirror.root).as_posix() for path in paths}
    told = {at: mirror.listed[name].digest for at, name in listed.items() if name in mirror.listed}
    other = [at for at in told if not at.is_file()]
    files = {at: digest for at, digest in told.items() if at not in other}
    return [listed[path] for path in (*other, *checked.unsound(files))]


def _clear(root: Path, relative: str) -> Path:
    """Where a file of a copy goes; a folder there is removed, and so is a file above it.

    Raises
    ------
    UsageError
        It cannot be.
    """
    path = objects.plain_path(root, relative)
    if path.is_file():
        return path
    try:
        for above in [*path.relative_to(root).parents][-2::-1]:
            if (root / above).exists() and not (root / above).is_dir():
                (root / above).unlink(missing_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # another process removes it too
    except OSError as error:
        raise UsageError(
            f"{error.filename} is where the cache has another file or folder, and cannot be removed"
            f" ({error.strerror}); remove it"
        ) from error
    return path


def _fetch_again(mirror: Mirror, paths: Sequence[str], *, held: bool = False) -> None:
    try:
        _fetch(mirror, paths, held=held)
    except RemoteError as error:
        raise RemoteError(
            f"{mirror.root / paths[0]} is damaged and cannot be fetched again: {error}"
        ) from error
    for path in paths:
        LOG.warning("%s was damaged and was fetched again", mirror.root / path)


def names(folder: Path) -> list[str]:
    """Names of the files of a folder of tables, whether they have been fetched or not."""
    found = {entry.name for entry in objects.entries(folder)}
    if (mirror := mirror_of(folder)) is not None:
        prefix = f"{folder.relative_to(mirror.root).as_posix()}/"
        found |= {p.removeprefix(prefix) for p in mirror.listed if p.startswith(prefix)}
    return sorted(found)


def require_own(path: Path) -> None:
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


def open_mirror(url: str) -> Path:
    """Make or refresh the copy of the bank at a URL; its folder.

    Raises
    ------
    BankFormatError
        There is no bank, or none that can be read there without an index.
    DamagedError
        Its index is none.
    RemoteError
        The place cannot be reached.
    UsageError
        The cache cannot be written to.
    """
    root = cache_folder() / objects.digest_of(url.encode()).sha256[:16]
    try:
        root.mkdir(parents=True, exist_ok=True)
        if (root / ".lock").is_dir():
            LOG.warning("%s was damaged and is made anew", _clear(root, ".lock"))
        (root / ".lock").touch()
    except OSError as error:
        raise UsageError(
            f"what is read of {url} is kept in {root.parent}, which cannot be written to"
            f" ({error.strerror}); set LOGITBANK_CACHE to a folder that can"
        ) from error
    with locks.locked(root / ".lock"):
        _refresh(root, url)
        _make_whole(root)
    return root


def _make_whole(root: Path) -> None:
    """Fetch the small objects of a copy that are not there, or not what is listed."""
    mirror = mirror_of(root)
    assert mirror is not None, "it was refreshed"
    small = {path: objects.plain_path(root, path) for path in mirror.listed if TEXT.fullmatch(path)}
    _fetch(mirror, [path for path, at in small.items() if not at.exists()], held=True)
    _fetch_again(mirror, _damaged(mirror, small.values()), held=True)


def bring(path: str, source: Path, to: Path, expected: Digest, say: "Say") -> None:
    """Copy an object of a bank or of the bank that a copy is of; checked, whole or not at all."""
    mirror = mirror_of(source)
    here = objects.plain_path(source, path)
    to.parent.mkdir(parents=True, exist_ok=True)
    if mirror is None or here.exists():
        ensure_here(here)
        data = read_checked(here, expected)
        objects.write_durable(to, data)
        say(len(data))
        return
    if to.exists() and objects.digest(to) == expected:  # from an interrupted call
        say(expected.bytes)
    else:
        to.unlink(missing_ok=True)
        mirror.remote(mirror.listed[path].part).download(path, expected, to, say)
    objects.sync(to)


def read_checked(path: Path, expected: Digest) -> bytes:
    """The bytes of an object.

    Raises
    ------
    DamagedError
        They are not what was committed.
    """
    objects.require_file(path)
    data = path.read_bytes()
    if objects.digest_of(data) != expected:
        raise DamagedError(f"{path} is not what was committed; run `logitbank verify`")
    return data


def _fetch(mirror: Mirror, paths: Sequence[str], *, held: bool = False) -> None:
    """Fetch objects into the copy. `held` says that its lock is, so that it is up to date."""
    if not paths:
        return

    def fetch(path: str) -> None:
        listed = mirror.listed.get(path)
        if listed is None:
            return
        to = _clear(mirror.root, path)
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            mirror.remote(listed.part).download(path, listed.digest, to)
        except FileNotFoundError:
            if not held:
                open_mirror(mirror.url)  # a seal may have replaced it since
            now = mirror_of(mirror.root)
            if now is not None and path in now.listed:
                raise RemoteError(
                    f"{mirror.url}/{path} is not there, although the bank lists it; ask its"
                    " publisher to push again"
                ) from None

    in_parallel(fetch, paths)


def _refresh(root: Path, url: str) -> None:
    from logitbank.store.remote.remote import Remote

    try:
        old = mirror_of(root)
    except DamagedError:
        LOG.warning("%s was damaged and is made anew", root / _LISTING)
        old = None
    etags = old.etags if old else ()
    parts, new_etags, changed = 1, [], False
    found: dict[str, Object] = {}
    part = 1
    while part <= parts:
        remote = Remote.at(part_url(url, part))
        unless = etags[part - 1] if part <= len(etags) else None
        answer = _read_index(remote, unless if part == 1 else None)
        if answer is None:
            if len(etags) == 1:
                return  # nothing has changed
            answer = _read_index(remote, None)
        assert answer is not None
        objects_, count, etag = answer
        parts = count if part == 1 else parts
        new_etags.append(etag)
        found |= {p: Object(o.digest, o.text, part) for p, o in objects_.items() if p not in found}
        changed = True
        part += 1
    if "zarr.json" not in found:
        raise BankFormatError(f"{url} lists no zarr.json, so it is no bank; check the address")
    if changed:
        _write(root, url, tuple(new_etags), found, old)


def _read_index(
    remote: "Remote", unless: str | None
) -> tuple[Mapping[str, Object], int, str | None] | None:
    """Objects, number of parts and ETag; None where the index has not changed."""
    where = f"{remote.url}/{index.NAME}"
    try:
        answer = remote.read(index.NAME, limit=index.MAX_BYTES, unless=unless)
        if answer is None:
            return None
        read = index.parse(answer.data, where=where)
        return read.objects, read.parts, answer.etag
    except FileNotFoundError as error:
        if not remote.url.startswith("s3:"):
            raise BankFormatError(
                f"there is no bank at {remote.url}: {where} is not there; check the address, or"
                " publish the bank there with `logitbank push`"
            ) from error

    def read_small(path: str) -> bytes:
        answer = remote.read(path, limit=index.MAX_TEXT)
        assert answer is not None
        return answer.data

    listing = remote.listing()
    if "zarr.json" not in listing:
        raise BankFormatError(f"there is no bank at {remote.url}: it has no zarr.json")
    found = index.complete(listing, {}, lambda paths: in_parallel(read_small, paths))
    return found, 1, None


def _write(
    root: Path,
    url: str,
    etags: tuple[str | None, ...],
    found: Mapping[str, Object],
    old: Mirror | None,
) -> None:
    """Bring the copy up to date: what is new first, so that a reader meanwhile lacks nothing."""
    had = old.listed if old else {}
    texts: dict[Path, bytes] = {}
    for path, value in found.items():
        at = objects.plain_path(root, path)
        if value.text is not None and (
            path not in had or had[path].digest != value.digest or not at.exists()
        ):
            _clear(root, path)
            at.parent.mkdir(parents=True, exist_ok=True)
            texts[at] = value.text.encode()
    in_parallel(lambda item: _replace(*item), list(texts.items()), at_once=_SYNCED_AT_ONCE)
    listed = {p: [o.digest.bytes, o.digest.sha256, o.part] for p, o in found.items()}
    content = {"url": url, "etags": list(etags), "objects": listed}
    _clear(root, _LISTING)
    _replace(root / _LISTING, documents.signed(content, content))
    replaced = [p for p in had if p in found and found[p].digest != had[p].digest]
    gone = [p for p in replaced if found[p].text is None] + sorted(_held(root, old) - set(found))
    for path in gone:
        _clear(root, path).unlink(missing_ok=True)


def _held(root: Path, old: Mirror | None) -> set[str]:
    """Objects that are in the copy, or were listed; where the listing was lost, what lies there."""
    if old is not None:
        return set(old.listed)
    files = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {path for path in files if is_object(path)}


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")  # the caller holds the copy's lock
    if beside.is_dir():
        _clear(beside.parent, beside.name)
    objects.write_durable(beside, data)
    beside.replace(path)


@lru_cache(maxsize=16)
def _load(root: Path, _: checked.Stamp) -> Mirror:
    try:
        content = checked.document(root / _LISTING)
        listed = {p: Object(Digest(s, n), None, k) for p, (n, s, k) in content["objects"].items()}
        return Mirror(root, content["url"], tuple(content["etags"]), listed)
    except (KeyError, TypeError, ValueError, AttributeError, DamagedError) as error:
        raise DamagedError(
            f"{root / _LISTING} is not what was written there; open the bank at its URL again"
        ) from error
