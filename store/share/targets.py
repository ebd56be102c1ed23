"""What objects are sent from, and what they are sent to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from logitbank.errors import DamagedError, RemoteError
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import index
from logitbank.store.format.index import Object
from logitbank.store.share.places import Place, Say


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

    def copy(self, path: str, value: Object, to: Path, say: Say) -> None:
        """Copy an object, whole and durable; one of an interrupted call is used again."""
        to.parent.mkdir(parents=True, exist_ok=True)
        if to.exists() and objects.digest(to) == value.digest:
            say(value.digest.bytes)
        elif self.place is not None and value.text is None and not self._has(path, value):
            try:
                self.place.download(path, value.digest, to, say)
            except FileNotFoundError as error:
                raise RemoteError(
                    f"{error} is not there, although the bank lists it. Ask its publisher to run"
                    " `logitbank verify` and push again"
                ) from error
        else:
            objects.write_durable(to, self.read(path, value))
            say(value.digest.bytes)
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

    def send(self, group: Mapping[str, Object], source: SourceBank, say: Say) -> None:
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
