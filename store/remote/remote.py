"""Objects behind a URL, through obstore: S3, HTTP, and the Hugging Face Hub. Knows no bank.

The only file that imports obstore. Reading from the Hub is plain HTTP.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.errors import RemoteError
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.remote.explained import explained
from logitbank.store.remote.place import environment, place_of
from logitbank.store.remote.web import NoRangesError, NotModifiedError, Web

Say = Callable[[int], None]
"""Called with the bytes that have just arrived."""
AT_ONCE = 8
_PIECE = 2**20


class Fetched(NamedTuple):
    """A small object."""

    data: bytes
    etag: str | None


@dataclass(frozen=True)
class Remote:
    """One place of objects. `at` makes one; what goes wrong is a RemoteError that names the URL."""

    url: str
    store: Any = field(repr=False, compare=False)
    web: Web | None = field(default=None, repr=False, compare=False)
    """The connection to a web server or the Hub; None for other places."""

    @classmethod
    def at(cls, url: str, *, write: bool = False) -> "Remote":
        """The place at a URL; nothing is asked of it yet.

        Raises
        ------
        MissingExtraError
            obstore is not installed; of the Hub, huggingface_hub.
        UsageError
            The URL names no bucket or repository.
        """
        return cls(url, *place_of(url, write, environment()))

    def read(self, path: str, *, limit: int, unless: str | None = None) -> Fetched | None:
        """A small object; None where its ETag still is `unless`.

        Raises
        ------
        FileNotFoundError
            It is not there.
        RemoteError
            The place does not give it, or it is larger than `limit`.
        """
        more = f"is larger than {limit:,} bytes; refused"
        return self._read(path, {}, unless, most=limit, more=more)

    def read_range(
        self, path: str, offset: int, length: int, *, unless: str | None = None
    ) -> Fetched | None:
        """Some bytes of an object, never more than asked for; None where its ETag is `unless`.

        Raises
        ------
        FileNotFoundError
            It is not there.
        RefusedError
            The place gives no parts of objects, or the object ends before.
        RemoteError
            It does not give them for another reason.
        """
        more = (
            f"sends more than the {length:,} bytes that were asked for; ask its publisher about the"
            " server"
        )
        part = {"range": (offset, offset + length)}
        return self._read(path, part, unless, most=length, more=more)

    def _read(
        self, path: str, options: dict[str, Any], unless: str | None, *, most: int, more: str
    ) -> Fetched | None:
        """At most so many bytes; where there are `more`, that is said of the object."""
        import obstore

        if unless:
            options["if_none_match"] = unless
        with self._explained(path):
            try:
                result = self._get(path, options or None)
            except (obstore.exceptions.NotModifiedError, NotModifiedError):
                return None
            pieces, size = [], 0
            for piece in result.stream(min_chunk_size=_PIECE):
                size += len(piece)
                if size > most:
                    raise RemoteError(f"{self.url}/{path} {more}")
                pieces.append(bytes(piece))
            return Fetched(b"".join(pieces), result.meta["e_tag"])

    def download(self, path: str, expected: Digest, to: Path, say: Say = lambda _: None) -> None:
        """Fetch an object into a file, or what an interrupted call left to fetch of it.

        The file appears whole, checked and durable, or not at all, in place of a damaged one;
        several processes fetch it once.

        Raises
        ------
        FileNotFoundError
            It is not there.
        RemoteError
            The place does not give it, or gives other bytes than expected.
        """
        with locks.locked(to.with_name(f".{to.name}.lock")):
            if to.exists() and objects.digest(to) == expected:
                return
            beside = to.with_name(f".{to.name}.part")
            with disk.naming_full(to, expected.bytes):
                got = self._continue(path, expected, beside, say)
            if got != expected:
                beside.unlink()
                raise RemoteError(
                    f"{self.url}/{path} does not hold the bytes that its bank lists for it: it was"
                    " changed, or damaged on the way; run the same command again, and if that does"
                    " not help, ask its publisher to push again"
                )
            objects.sync(beside)
            beside.rename(to)

    def _continue(self, path: str, expected: Digest, beside: Path, say: Say) -> Digest:
        import obstore

        digest, size = hashlib.sha256(), 0
        with beside.open("a+b") as file, self._explained(path):
            file.seek(0)
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
            if 0 < size < expected.bytes:
                options: Any = {"range": {"offset": size}}
            else:
                options = None
            if size > expected.bytes:
                return Digest(digest.hexdigest(), size)
            if size == expected.bytes and size:
                say(size)
                return Digest(digest.hexdigest(), size)
            try:
                result = self._get(path, options)
            except (obstore.exceptions.NotSupportedError, NoRangesError):  # from the beginning
                result = self._get(path)
                digest, size = hashlib.sha256(), 0
                file.truncate(0)
            say(size)
            for chunk in result.stream(min_chunk_size=_PIECE):
                data = bytes(chunk)
                size += len(data)
                digest.update(data)
                file.write(data)
                say(len(data))
                if size > expected.bytes:  # no further: it may have no end
                    break
        return Digest(digest.hexdigest(), size)

    def listing(self) -> dict[str, int]:
        """Bytes of everything that is there, by path."""
        import obstore

        with self._explained(""):
            return {
                meta["path"]: meta["size"] for batch in obstore.list(self.store) for meta in batch
            }

    def create(self, path: str, data: bytes) -> bool:
        """Create an object exclusively; False where one is there already."""
        import obstore

        with self._explained(path):
            try:
                obstore.put(self.store, path, data, mode="create", use_multipart=False)
            except obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def replace(self, path: str, data: bytes, *, was: str | None) -> bool:
        """Replace the object whose ETag was `was`; False where it has been replaced meanwhile."""
        import obstore

        if was is None:
            return self.create(path, data)
        with self._explained(path):
            try:
                obstore.put(self.store, path, data, mode={"e_tag": was}, use_multipart=False)
            except obstore.exceptions.PreconditionError:
                return False
        return True

    def holds(self, path: str, data: bytes) -> bool:
        """Whether an object that is there has these bytes."""
        import obstore

        with self._explained(path):
            meta = obstore.head(self.store, path)
            if meta["size"] != len(data):
                return False
            # What S3 says of an object that came in one piece; it saves downloading it.
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            if (meta["e_tag"] or "").strip('"') == md5:
                return True
            digest = hashlib.sha256()
            for piece in obstore.get(self.store, path).stream(min_chunk_size=_PIECE):
                digest.update(bytes(piece))
        return digest.digest() == hashlib.sha256(data).digest()

    def delete(self, paths: Sequence[str]) -> None:
        import obstore

        with self._explained(""):
            if paths:
                obstore.delete(self.store, list(paths))

    def _get(self, path: str, options: Any = None) -> Any:
        import obstore

        if self.web is not None:
            return self.web.get(path, options)
        return obstore.get(self.store, path, options=options)

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        with explained(f"{self.url}/{path}" if path else self.url):
            yield
