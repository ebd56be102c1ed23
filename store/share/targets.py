"""What objects are sent from, and to: a folder, or a prefix of an S3-compatible store."""

import hashlib
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from logitbank.errors import DamagedError, RemoteError
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import Staging, remove_dead
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Object, committed_digests, deposit_of
from logitbank.store.share.card import CARD, UNKNOWN, card, is_written_by_hand
from logitbank.store.share.moves import clash, rounds
from logitbank.store.share.places import Advance, Place, explained, place_at, s3_store

_SENT_AT_ONCE = 4  # each holds one object in memory
_ATTEMPTS = 20


@dataclass(frozen=True)
class SourceBank:
    """Objects of a bank in a folder, or of a bank at a URL whose folder is a partial copy."""

    root: Path
    place: Place | None = None

    def checked(self, path: str, expected: Digest) -> Path:
        """The file of an object.

        Raises
        ------
        DamagedError
            It is missing, or is not what was committed.
        """
        file = objects.plain_path(self.root, path)
        if objects.require_file(file) is None:
            raise DamagedError(f"{file} was committed and is missing; run `logitbank verify`")
        if objects.digest(file) != expected:
            raise DamagedError(f"{file} is not what was committed; run `logitbank verify`")
        return file

    def read(self, path: str, value: Object) -> bytes:
        """The bytes of an object; raises as `checked`."""
        if value.text is not None:
            return value.text.encode()
        return self.checked(path, value.digest).read_bytes()

    def copy(self, path: str, value: Object, to: Path, advance: Advance) -> None:
        """Copy an object, whole and durable; one of an interrupted call is used again."""
        to.parent.mkdir(parents=True, exist_ok=True)
        if to.exists() and objects.digest(to) == value.digest:
            advance(value.digest.bytes)
        elif self.place is not None and value.text is None and not self._has(path, value):
            try:
                self.place.download(path, value.digest, to, advance)
            except FileNotFoundError as error:
                raise RemoteError(
                    f"{error} is not there, although the bank lists it. Ask its publisher to run"
                    " `logitbank verify` and push again"
                ) from error
        else:
            objects.write_durable(to, self.read(path, value))
            advance(value.digest.bytes)
        objects.sync(to)

    def _has(self, path: str, value: Object) -> bool:
        file = objects.plain_path(self.root, path)
        return file.is_file() and objects.digest(file) == value.digest


class Target(Protocol):
    """A place that others may write to at the same time."""

    @property
    def name(self) -> str: ...

    def stored(self) -> dict[str, Object]:
        """Objects that are there and in force."""

    def send(self, group: Mapping[str, Object], source: SourceBank, advance: Advance) -> None:
        """Put objects there, commits last; nothing is overwritten."""

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        """Write the index of what is there, and remove what a seal replaced."""


def known_objects(data: bytes | None, where: str) -> dict[str, Object]:
    """What the index of a place lists; nothing if it is damaged, since it is derived."""
    if data is None:
        return {}
    try:
        return index.parse(data, where=where)
    except DamagedError:
        return {}


class Folder:
    """The folder of a bank: pulled, or with an index and a card for others."""

    def __init__(self, root: Path, *, indexed: bool) -> None:
        self.name = str(root)
        self._root, self._indexed = root, indexed

    def stored(self) -> dict[str, Object]:
        known = known_objects(self._read(index.NAME), self.name) if self._indexed else {}
        listing = {
            file.relative_to(self._root).as_posix(): file.stat().st_size
            for file in _files(self._root)
        }
        return index.complete(
            listing, known, lambda paths: [self._at(path).read_bytes() for path in paths]
        )

    def send(self, group: Mapping[str, Object], source: SourceBank, advance: Advance) -> None:
        """Prepare objects in a folder of this writer alone, then put them in place."""
        if (document := group.get("zarr.json")) is not None and document.text is not None:
            # Without it the folder is no bank, and the same command could not go on.
            objects.write_new(self._root / "zarr.json", document.text.encode())
        with locks.locked(self._root / ".lock"):
            staging = Staging.adopt(self._root)
        try:
            self._send(group, source, staging.path, advance)
        except BaseException:
            staging.leave()
            raise
        staging.remove()

    def _send(
        self, group: Mapping[str, Object], source: SourceBank, staging: Path, advance: Advance
    ) -> None:
        def prepare(path: str) -> None:
            with disk.naming_full(self._root, group[path].digest.bytes):
                source.copy(path, group[path], staging / path, advance)

        in_parallel(prepare, list(group), at_once=_SENT_AT_ONCE)
        paths_of_deposits: dict[str, list[str]] = {}
        for path in group:
            paths_of_deposits.setdefault(deposit_of(path) or "", []).append(path)
        for deposit, paths in sorted(paths_of_deposits.items()):
            folder = self._at(deposit) if deposit else self._root
            objects.make_folders(self._root, folder)
            with locks.locked(folder / ".lock"):
                for path in (p for ranked in rounds(paths) for p in ranked):
                    self._place(staging / path, path, group[path])

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        for path in replaced:
            self._at(path).unlink(missing_ok=True)
        remove_dead(self._root)
        if not self._indexed:
            return
        with locks.locked(self._root / ".index.lock"):
            known = known_objects(self._read(index.NAME), self.name)
            new = index.in_force({**known, **stored})
            self._replace(index.NAME, index.render(new))
            if not is_written_by_hand(self._read(CARD)):
                text = card(new, url=UNKNOWN, name=self._root.resolve().name)
                self._replace(CARD, text.encode())
            objects.sync(self._root)

    def _read(self, name: str) -> bytes | None:
        file = self._root / name
        return file.read_bytes() if file.is_file() else None

    def _replace(self, name: str, data: bytes) -> None:
        if self._read(name) != data:
            beside = self._root / f".{name}.new"
            objects.write_durable(beside, data)
            beside.rename(self._root / name)

    def _place(self, prepared: Path, path: str, value: Object) -> None:
        target = self._at(path)
        objects.make_folders(self._root, target.parent)
        if target.exists() and objects.digest(target) != value.digest:
            if deposit_of(path) is None:  # somebody was quicker; tables are named by content
                return
            committed = self._vouched(path)
            if "/commits/" in path or path.endswith("zarr.json") or path in committed:
                raise clash(path, value.digest, committed, self.name)
        os.replace(prepared, target)
        objects.sync(target.parent)

    def _vouched(self, path: str) -> Mapping[str, Digest]:
        deposit = deposit_of(path)
        commits = objects.entries(self._at(f"{deposit}/commits"))
        return committed_digests(
            {f"{deposit}/commits/{e.name}": Path(e.path).read_text() for e in commits}
        )

    def _at(self, path: str) -> Path:
        return objects.plain_path(self._root, path)


def _files(folder: Path) -> list[Path]:
    """Files of a bank, without those that are hidden."""
    files: list[Path] = []
    for entry in objects.entries(folder):
        files += _files(Path(entry.path)) if entry.is_dir() else [Path(entry.path)]
    return files


class Bucket:
    """The prefix: every object is created exclusively, and the index replaced by its ETag."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._place, self._store = place_at(url), s3_store(url, write=True)
        self._vouched: Mapping[str, Digest] = {}

    def stored(self) -> dict[str, Object]:
        import obstore

        with explained(self.name):
            pages = list(obstore.list(self._store))
        listing = {meta["path"]: meta["size"] for page in pages for meta in page}
        known = known_objects(self._index()[0], self.name)
        stored = index.complete(listing, known, partial(in_parallel, self._read))
        texts = {path: value.text for path, value in stored.items() if value.text is not None}
        self._vouched = committed_digests(texts)
        return stored

    def send(self, group: Mapping[str, Object], source: SourceBank, advance: Advance) -> None:
        def put(path: str) -> None:
            data = source.read(path, group[path])
            # There already if an earlier call was interrupted, or somebody was quicker.
            if not self._put(path, data, "create") and not self._has(path, data):
                raise clash(path, group[path].digest, self._vouched, self.name)
            advance(len(data))

        for paths in rounds(group):
            in_parallel(put, paths, at_once=_SENT_AT_ONCE)

    def finish(self, stored: Mapping[str, Object], replaced: Sequence[str]) -> None:
        import obstore

        for attempt in range(_ATTEMPTS):
            data, etag = self._index()
            new = index.render(index.in_force({**known_objects(data, self.name), **stored}))
            if data == new or self._put(index.NAME, new, etag or "create"):
                with explained(self.name):
                    if replaced:
                        obstore.delete(self._store, list(replaced))
                return
            time.sleep(random.uniform(0, 0.05 * 2 ** min(attempt, 6)))  # others push as well
        raise RemoteError(
            f"{self.name}/{index.NAME} was replaced by others again and again; everything was sent."
            " Run the same command again to have it listed"
        )

    def _index(self) -> tuple[bytes | None, str | None]:
        try:
            return self._place.read(index.NAME, limit=index.MAX_BYTES)
        except FileNotFoundError:
            return None, None

    def _read(self, path: str) -> bytes:
        return self._place.read(path).data

    def _put(self, path: str, data: bytes, was: str) -> bool:
        """Put an object over the one with this ETag, or "create" it; False if it is another."""
        import obstore

        errors = obstore.exceptions
        mode = "create" if was == "create" else {"e_tag": was}
        with explained(f"{self.name}/{path}"):
            try:
                obstore.put(self._store, path, data, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return False
        return True

    def _has(self, path: str, data: bytes) -> bool:
        """Whether an object that is there has these bytes."""
        import obstore

        with explained(f"{self.name}/{path}"):
            meta = obstore.head(self._store, path)
        # The ETag of an object that came in one piece saves downloading it.
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        same_size = meta["size"] == len(data)
        return same_size and ((meta["e_tag"] or "").strip('"') == md5 or self._read(path) == data)
