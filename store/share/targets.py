"""Targets of objects, where others may write, too: one protocol, and the folder of a bank."""

import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from logitbank.errors import DamagedError, RemoteError
from logitbank.store.deposits import catalog
from logitbank.store.deposits.catalog import remove_abandoned
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import copies, disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import (
    Staging,
    any_staging,
    remove_dead_folders,
    remove_dead_staging,
)
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.commits import SEAL
from logitbank.store.format.index import (
    Object,
    Objects,
    committed_digests,
    object_deposit,
    object_head,
    text_object,
)
from logitbank.store.heads.stored import head_digests, is_whole
from logitbank.store.progress import Advance
from logitbank.store.share.card import CARD, card, is_written_by_hand
from logitbank.store.share.moves import conflict, is_same, last_object, rounds
from logitbank.store.share.remote import Remote, absent, download

SENT_AT_ONCE = 4  # each holds one object in memory
ATTEMPTS = 10
PUBLISHED = (index.NAME, CARD)


@dataclass(frozen=True)
class Source:
    """A bank in a folder, or a bank at a URL whose documents are in the folder."""

    root: Path
    remote: Remote | None = None

    @property
    def url(self) -> str:
        """Its URL or folder, for messages."""
        return copies.address(self.root) if self.remote is None else self.remote.url

    def file(self, path: str, expected: Digest) -> Path:
        """The file of an object, or DamagedError if it is missing or differs from its commit."""
        file = objects.plain_path(self.root, path)
        if objects.require_file(file) is None:
            raise self._missing(path)
        if objects.digest(file) != expected:
            raise _changed(file)
        return file

    def read(self, path: str, value: Object) -> bytes:
        """The bytes of an object. Raises as `file`."""
        if value.text is not None:
            return value.text.encode()
        return self.file(path, value.digest).read_bytes()

    def copy(self, path: str, value: Object, to: Path) -> None:
        """Copy an object into a file, which is durable afterwards. Raises as `file`."""
        if value.text is not None:
            objects.write_durable(to, value.text.encode())
        elif self.remote is None:
            self._copy_file(path, value.digest, to)
        else:
            try:
                download(self.remote, path, value.digest, to)
            except FileNotFoundError as error:
                raise absent(error) from error
            objects.sync(to)

    def _copy_file(self, path: str, expected: Digest, to: Path) -> None:
        file = objects.plain_path(self.root, path)
        if (status := objects.require_file(file)) is None:
            raise self._missing(path)
        if status.st_size == expected.bytes:
            shutil.copyfile(file, to)
            if objects.fsync_digest(to) == expected:
                return
        raise _changed(file)

    def _missing(self, path: str) -> DamagedError:
        return DamagedError(
            f"{self.root / path} was committed and is missing. If it was sealed meanwhile, run the"
            " same command again. Otherwise run `logitbank verify`."
        )


def _changed(file: Path) -> DamagedError:
    return DamagedError(
        f"{file} differs from its commit, so it is not copied. Run `logitbank verify`."
    )


Check = Callable[[Iterable[str]], object]


def accept(_: Iterable[str]) -> None:
    """A `Check` that accepts all."""


class Target(Protocol):
    """A place that others may write to at the same time."""

    @property
    def url(self) -> str:
        """Its URL or folder, for messages."""

    @property
    def card_url(self) -> str | None:
        """Address that its card names; None if it has no card."""

    @property
    def has_leftovers(self) -> bool:
        """Whether tables of prompts may lie there that a killed or refused push has left."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes of all objects, by path."""

    def read(self, path: str) -> bytes:
        """A small object, or FileNotFoundError."""

    def unfinished(self) -> Objects:
        """Documents of deposits in progress that have commits."""

    def root(self) -> bytes | None:
        """The current root document; None if there is none."""

    def put_root(self, change: Callable[[bytes | None], bytes]) -> None:
        """Replace the root document by what `change` makes of the current one."""

    def send(
        self, group: Objects, source: Source, advance: Advance, check: Check = accept
    ) -> Objects:
        """Create objects, commits last; return those that another writer placed meanwhile.

        What no commit lists is replaced. Other bytes of what a commit lists are a BankError. If the
        group has tables of prompts, `check` gets the paths of those that other writers placed, and
        raises a BankError if they contradict the group. Nothing of the group then stays.
        """

    def current(self) -> dict[str, bytes]:
        """The index and the card, if they exist."""

    def replace(self, files: Mapping[str, bytes], before: Mapping[str, bytes]) -> bool:
        """Write index and card; False if they are not `before` any more."""


def stored_objects(target: Target) -> dict[str, Object]:
    """The objects of a target, of whole deposits only."""
    sizes = target.sizes()
    known = _known(target.read(index.NAME) if index.NAME in sizes else None, target.url)
    found = index.complete(sizes, known, partial(in_parallel, target.read))
    return index.claimed(found, known) if target.has_leftovers else found


def publish(target: Target, stored: Objects) -> Objects:
    """Write the index and the card of a target; the objects that it then lists."""
    for attempt in range(ATTEMPTS):
        before = target.current()
        listed = index.whole({**_listed(target, before.get(index.NAME)), **stored})
        if (root := target.root()) is not None:
            listed["zarr.json"] = text_object(root.decode())
        files = {index.NAME: index.render(listed)}
        if target.card_url is not None and not is_written_by_hand(before.get(CARD)):
            files[CARD] = card(listed, url=target.card_url).encode()
        changed = {name: data for name, data in files.items() if before.get(name) != data}
        if not changed or target.replace(changed, before):
            return listed
        wait(attempt)
    raise busy(target.url)


def claim(target: Target, tables: Objects, check: Check) -> None:
    """List tables of prompts in the index of a target before anything that needs them is sent.

    Of two pushes at once, the second to do so sees the tables of the first. Raises as `check`.
    """
    for attempt in range(ATTEMPTS):
        before = target.current()
        listed = _listed(target, before.get(index.NAME))
        check(listed)
        if {*tables} <= {*listed}:
            return
        files = {index.NAME: index.render({**listed, **tables})}
        if target.replace(files, before):
            return
        wait(attempt)
    raise busy(target.url)


def wait(attempt: int) -> None:
    """Wait for others that change a target, longer after each attempt."""
    time.sleep(random.uniform(0, 0.05 * 2 ** min(attempt, 6)))


def busy(url: str) -> RemoteError:
    return RemoteError(
        f"Others kept changing {url} at the same time. Run the same command again to resume."
    )


def _listed(target: Target, data: bytes | None) -> dict[str, Object]:
    """The objects in the index of a target; if it is damaged or absent, all that are there."""
    if data is not None:
        with suppress(DamagedError):
            return index.parse(data, where=target.url)
    found = index.complete(target.sizes(), {}, partial(in_parallel, target.read))
    return index.claimed(found, {}) if target.has_leftovers else found


def _known(data: bytes | None, where: str) -> dict[str, Object]:
    """The objects that an index lists; none if it is damaged, because it is derived."""
    try:
        return {} if data is None else index.parse(data, where=where)
    except DamagedError:
        return {}


class Folder:
    """The folder of a bank."""

    card_url = None
    has_leftovers = False

    def __init__(self, root: Path) -> None:
        self.url, self._root = str(root), root

    def sizes(self) -> dict[str, int]:
        damaged = {
            f"heads/{each}" for each in head_digests(self._root) if not is_whole(self._root, each)
        }
        return {
            path: (self._root / path).stat().st_size
            for path in objects.visible_files(self._root)
            if object_head(path) not in damaged  # they are replaced
        }

    def read(self, path: str) -> bytes:
        return objects.plain_path(self._root, path).read_bytes()

    def unfinished(self) -> Objects:
        found = {}
        for folder in catalog.deposit_folders(self._root):
            commits = objects.entries(self._root / folder / "commits")
            document = objects.plain_path(self._root, f"{folder}/zarr.json")
            if commits and all(e.name != f"{SEAL}.json" for e in commits) and document.exists():
                found[f"{folder}/zarr.json"] = text_object(document.read_text())
        return found

    def root(self) -> bytes | None:
        path = objects.plain_path(self._root, "zarr.json")
        return path.read_bytes() if path.exists() else None

    def put_root(self, change: Callable[[bytes | None], bytes]) -> None:
        objects.make_root(self._root)
        path = objects.plain_path(self._root, "zarr.json")
        with disk.naming_full(self._root, 2**20), locks.locked(self._root / ".lock"):
            objects.remove_dead_files(self._root)
            before = self.root()
            if (content := change(before)) != before:
                with objects.temporary_file(path, content) as file:
                    file.replace(path)
                objects.sync(self._root)

    def send(
        self, group: Objects, source: Source, advance: Advance, check: Check = accept
    ) -> Objects:
        with locks.locked(self._root / ".lock"):
            remove_dead_folders(self._root)  # first: they may fill the disk
            staging = Staging(self._root)

        def prepared(path: str) -> Path:
            return staging.path / hashlib.sha256(path.encode()).hexdigest()

        def prepare(path: str) -> None:
            with disk.naming_full(self._root, group[path].digest.bytes):
                source.copy(path, group[path], prepared(path))
            advance(group[path].digest.bytes)

        by_deposit: dict[str, list[str]] = {}
        kept: dict[str, Object] = {}
        for path in group:
            by_deposit.setdefault(object_deposit(path) or "", []).append(path)
        with staging:
            for deposit, paths in sorted(by_deposit.items()):
                in_parallel(prepare, paths, max_threads=SENT_AT_ONCE)
                folder = objects.plain_path(self._root, deposit) if deposit else self._root
                if f"{deposit}/commits/{SEAL}.json" in group:
                    self._remove_unfinished(deposit)
                objects.make_folders(self._root, folder)
                # One lock for all, so that objects of two writers are not mixed.
                with locks.locked(folder / ".lock"):
                    if deposit:
                        self._require_same_commits(deposit, group)
                    else:
                        self._require_one_version(paths, check)
                        self._remove_damaged_heads(paths)
                    for path in (path for ranked in rounds(paths) for path in ranked):
                        if theirs := self._place(path, group[path], prepared(path)):
                            kept[path] = theirs
        return kept

    def _require_one_version(self, paths: Iterable[str], check: Check) -> None:
        """Compare tables of prompts with those that other writers have placed meanwhile."""
        if any(path.startswith("prompts/") for path in paths):
            check(f"prompts/{entry.name}" for entry in objects.entries(self._root / "prompts"))

    def _remove_damaged_heads(self, paths: Iterable[str]) -> None:
        for head in {object_head(path) for path in paths} - {None}:
            present = objects.plain_path(self._root, str(head))
            if present.exists() and not is_whole(self._root, present.name):
                objects.remove_folder(present)

    def _remove_unfinished(self, deposit: str) -> None:
        """Remove a part of a deposit, or what a killed writer left, unless a writer is at work."""
        with suppress(FileNotFoundError):
            remove_abandoned(Deposit.open(self._root, deposit), with_blocks=True)

    def _place(self, path: str, value: Object, prepared: Path) -> Object | None:
        """Put an object in place; an equal commit of another writer stays, and is returned.

        The caller holds the lock of its deposit, or of the bank.
        """
        target = objects.plain_path(self._root, path)
        if target.exists():
            if objects.digest(target) == value.digest:
                return None  # another writer of the same objects was faster
            if "/commits/" in path:
                theirs = text_object(target.read_text())
                if is_same(path, value, theirs):
                    return theirs
            if object_deposit(path) is None:
                if objects.plain_path(self._root, last_object(path)).exists():
                    return None  # another writer was faster; their content names tables and heads
            elif "/commits/" in path or (path.endswith("zarr.json") and self._is_used(path)):
                raise conflict(path, self.url)
        objects.make_folders(self._root, target.parent)
        os.replace(prepared, target)
        objects.sync(target.parent)
        return None

    def _is_used(self, path: str) -> bool:
        """Whether the deposit of a document has commits, or a writer at work."""
        folder = objects.plain_path(self._root, object_deposit(path) or "")
        remove_dead_staging(folder)
        return bool(objects.entries(folder / "commits")) or any_staging(folder)

    def _require_same_commits(self, deposit: str, group: Objects) -> None:
        """Refuse a deposit in which another writer has committed other bytes."""
        entries = objects.entries(objects.plain_path(self._root, f"{deposit}/commits"))
        texts = {f"{deposit}/commits/{e.name}": Path(e.path).read_text() for e in entries}
        for path, digest in committed_digests(texts).items():
            if path in group and group[path].digest != digest:
                raise conflict(path, self.url)

    def current(self) -> dict[str, bytes]:
        files = {name: self._root / name for name in PUBLISHED}
        return {name: file.read_bytes() for name, file in files.items() if file.is_file()}

    def replace(self, files: Mapping[str, bytes], before: Mapping[str, bytes]) -> bool:
        with locks.locked(self._root / ".index.lock"):
            if self.current() != before:
                return False
            for name, data in files.items():
                with objects.temporary_file(self._root / name, data) as prepared:
                    prepared.replace(self._root / name)
            objects.sync(self._root)
        return True
