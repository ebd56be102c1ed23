"""Places that a bank's objects are sent to: a folder, or a bucket of an object store."""

import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from logitbank.errors import DamagedError, RemoteError
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Object, Objects, deposit_of, vouched
from logitbank.store.remote import fetching
from logitbank.store.remote.remote import Remote, Say
from logitbank.store.sharing.card import CARD, MARK, UNKNOWN, card
from logitbank.store.sharing.landing import PAGE, landing
from logitbank.store.sharing.moves import clash, rounds

_SENT_AT_ONCE = 4  # each holds one object in memory
_INCOMING = ".incoming"
_ATTEMPTS = 20


class Target(Protocol):
    """A place that others may write to at the same time."""

    @property
    def name(self) -> str: ...

    def stored(self) -> dict[str, Object]:
        """Objects that are there and in force."""

    def send(self, group: Mapping[str, Object], source: Path, say: Say) -> None:
        """Put objects of the bank at `source` there, commits last; nothing is overwritten."""

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        """Write the index of what is there; remove what a seal replaced and killed callers left."""


class Bucket:
    """A prefix of an S3-compatible store."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._remote = Remote.at(url, write=True)
        self._vouched: Mapping[str, Digest] = {}

    def stored(self) -> dict[str, Object]:
        listing = self._remote.listing()
        objects_ = index.complete(
            listing,
            self._known(self._read_index(index.NAME)[0]),
            lambda p: in_parallel(self._read, p),
        )
        self._vouched = vouched({p: o.text for p, o in objects_.items() if o.text is not None})
        return objects_

    def send(self, group: Mapping[str, Object], source: Path, say: Say) -> None:
        def put(path: str) -> None:
            file = objects.plain_path(source, path)
            fetching.ensure_here(file)
            data = fetching.read_checked(file, group[path].digest)
            # There already where an earlier call was interrupted, or somebody was quicker.
            if not self._remote.create(path, data) and not self._remote.holds(path, data):
                raise clash(path, group[path].digest, self._vouched, self.name)
            say(len(data))

        for paths in rounds(group):
            in_parallel(put, paths, at_once=_SENT_AT_ONCE)

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        for attempt in range(_ATTEMPTS):
            # The compressed one is read first: whoever replaces both from here on makes the second
            # replacement below fail, so that it never is what `index.json` was before theirs.
            packed, packed_etag = self._read_index(index.COMPRESSED)
            data, etag = self._read_index(index.NAME)
            new = index.render(index.in_force({**self._known(data), **stored}))
            if (data == new or self._remote.replace(index.NAME, new, was=etag)) and (
                index.is_compressed(packed, new)
                or self._remote.replace(index.COMPRESSED, index.compress(new), was=packed_etag)
            ):
                self._remote.delete(replaced)
                return
            time.sleep(random.uniform(0, 0.05 * 2 ** min(attempt, 6)))  # others push as well
        raise RemoteError(
            f"{self.name}/{index.NAME} was replaced by others again and again; everything was sent:"
            " run the same command again to have it listed"
        )

    def _read_index(self, name: str) -> tuple[bytes | None, str | None]:
        try:
            answer = self._remote.read(name, limit=index.MAX_BYTES)
        except FileNotFoundError:
            return None, None
        assert answer is not None
        return answer

    def _known(self, data: bytes | None) -> Mapping[str, Object]:
        return known_objects(data, f"{self.name}/{index.NAME}")

    def _read(self, path: str) -> bytes:
        answer = self._remote.read(path, limit=2**30)
        assert answer is not None
        return answer.data


class Folder:
    """A folder: of a bank that is pulled, or one that a server gives out."""

    def __init__(self, root: Path, *, indexed: bool) -> None:
        self.name = str(root)
        self._root, self._indexed = root, indexed

    def stored(self) -> dict[str, Object]:
        known: Mapping[str, Object] = {}
        if self._indexed and (self._root / index.NAME).is_file():
            known = known_objects((self._root / index.NAME).read_bytes(), self.name)
        return index.complete(
            dict(_walk(self._root, "")),
            known,
            lambda paths: [self._at(p).read_bytes() for p in paths],
        )

    def send(self, group: Mapping[str, Object], source: Path, say: Say) -> None:
        incoming = self._root / _INCOMING

        def fetch(path: str) -> None:
            value = group[path]
            with disk.naming_full(self._root, value.digest.bytes):
                if value.text is None:
                    fetching.bring(path, source, incoming / path, value.digest, say)
                else:
                    (incoming / path).parent.mkdir(parents=True, exist_ok=True)
                    objects.write_durable(incoming / path, value.text.encode())
                    say(value.digest.bytes)

        in_parallel(fetch, list(group), at_once=_SENT_AT_ONCE)
        paths_of_deposits: dict[str, list[str]] = {}
        for path in group:
            paths_of_deposits.setdefault(deposit_of(path) or "", []).append(path)
        for deposit, paths in sorted(paths_of_deposits.items()):
            folder = self._at(deposit) if deposit else self._root
            objects.make_folders(self._root, folder)
            with locks.locked(folder / ".lock"):
                for path in (p for ranked in rounds(paths) for p in ranked):
                    self._place(incoming / path, path, group[path])

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        for path in replaced:
            self._at(path).unlink(missing_ok=True)
        shutil.rmtree(self._root / _INCOMING, ignore_errors=True)
        for deposit in {deposit_of(path) for path in stored}:
            locks.remove_dead((self._at(deposit) if deposit else self._root) / ".lock")
        if not self._indexed:
            return
        with locks.locked(self._root / ".index.lock"):
            file = self._root / index.NAME
            old = file.read_bytes() if file.is_file() else None
            new = index.render(index.in_force({**known_objects(old, self.name), **stored}))
            if old != new:
                self._replace(index.NAME, new)
            packed = self._root / index.COMPRESSED
            if not index.is_compressed(packed.read_bytes() if packed.is_file() else None, new):
                self._replace(index.COMPRESSED, index.compress(new))
            self._describe(index.parse(new, where=self.name).objects)
            objects.sync(self._root)

    def _describe(self, objects_: Objects) -> None:
        """Write the card and the page of the folder, but not over those of its owner."""
        name = self._root.resolve().name
        readme, page = card(objects_, url=UNKNOWN, name=name), landing(objects_, name=name)
        for path, text in ((CARD, readme), (PAGE, page)):
            file = self._root / path
            old = file.read_bytes() if file.is_file() else None
            if old != text.encode() and (old is None or MARK.encode() in old):
                self._replace(path, text.encode())

    def _replace(self, name: str, data: bytes) -> None:
        beside = self._root / f".{name}.new"
        objects.write_durable(beside, data)
        beside.rename(self._root / name)

    def _place(self, incoming: Path, path: str, value: Object) -> None:
        target = self._at(path)
        objects.make_folders(self._root, target.parent)
        if target.exists() and objects.digest(target) != value.digest:
            if deposit_of(path) is None:  # somebody was quicker; tables are named by content
                incoming.unlink()
                return
            vouched_digests = self._vouched(path)
            if "/commits/" in path or path.endswith("zarr.json") or path in vouched_digests:
                raise clash(path, value.digest, vouched_digests, self.name)
        os.replace(incoming, target)
        objects.sync(target.parent)

    def _vouched(self, path: str) -> Mapping[str, Digest]:
        deposit = deposit_of(path)
        commits = objects.entries(self._at(f"{deposit}/commits"))
        return vouched({f"{deposit}/commits/{e.name}": Path(e.path).read_text() for e in commits})

    def _at(self, path: str) -> Path:
        return objects.plain_path(self._root, path)


def known_objects(data: bytes | None, where: str) -> Mapping[str, Object]:
    """What an index says of a place that can list; nothing where it is damaged: it is derived."""
    if data is None:
        return {}
    try:
        return index.parse(data, where=where).objects
    except DamagedError:
        return {}


def _walk(root: Path, folder: str) -> list[tuple[str, int]]:
    files: list[tuple[str, int]] = []
    for entry in objects.entries(root / folder):
        path = f"{folder}{entry.name}"
        if entry.is_dir():
            files += _walk(root, f"{path}/")
        else:
            files.append((path, entry.stat().st_size))
    return files
