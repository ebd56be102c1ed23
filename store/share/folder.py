"""Push into a folder that a web server gives out, and pull into a folder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import Staging, remove_dead
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Object, deposit_of, vouched
from logitbank.store.share.card import CARD, MARK, UNKNOWN, card
from logitbank.store.share.moves import clash, rounds
from logitbank.store.share.places import Say
from logitbank.store.share.targets import SourceBank, known_objects

_SENT_AT_ONCE = 4  # each holds one object in memory


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

    def send(self, group: Mapping[str, Object], source: SourceBank, say: Say) -> None:
        """Prepare objects in a folder of this writer alone, then put them in place."""
        if (document := group.get("zarr.json")) is not None and document.text is not None:
            # Without it the folder is no bank, and the same command could not go on.
            objects.write_new(self._root / "zarr.json", document.text.encode())
        with locks.locked(self._root / ".lock"):
            staging = Staging.adopt(self._root)
        try:
            self._send(group, source, staging.path, say)
        except BaseException:
            staging.leave()
            raise
        staging.remove()

    def _send(
        self, group: Mapping[str, Object], source: SourceBank, staging: Path, say: Say
    ) -> None:
        def prepare(path: str) -> None:
            with disk.naming_full(self._root, group[path].digest.bytes):
                source.copy(path, group[path], staging / path, say)

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
            text = card(new, url=UNKNOWN, name=self._root.resolve().name)
            old = self._read(CARD)
            if old is None or MARK.encode() in old:  # otherwise its owner wrote it
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
        return vouched({f"{deposit}/commits/{e.name}": Path(e.path).read_text() for e in commits})

    def _at(self, path: str) -> Path:
        return objects.plain_path(self._root, path)


def _files(folder: Path) -> list[Path]:
    """Files of a bank, without those that are hidden."""
    files: list[Path] = []
    for entry in objects.entries(folder):
        files += _files(Path(entry.path)) if entry.is_dir() else [Path(entry.path)]
    return files
