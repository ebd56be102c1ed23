"""S3-compatible stores through obstore: puts are exclusive, the index is replaced by its ETag."""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from logitbank.errors import BankError, MissingExtraError, RemoteError
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import (
    Object,
    Objects,
    committed_digests,
    is_data,
    object_deposit,
    text_object,
)
from logitbank.store.progress import Advance
from logitbank.store.share.moves import conflict, is_same, last_object, rounds
from logitbank.store.share.remote import explained, read, require_small
from logitbank.store.share.targets import (
    ATTEMPTS,
    SENT_AT_ONCE,
    Check,
    Source,
    accept,
    busy,
    claim,
    wait,
)
from logitbank.store.share.urls import check_environment

_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


_PIECE = 2**14
OBJECT_S = 3600
"""Seconds that an object may take: the default of obstore, 30, is less than a shard may need."""


class S3:
    """A prefix of a store, to read from and to write to."""

    card_url = None
    has_leftovers = True

    def __init__(self, url: str, *, write: bool = False) -> None:
        self.url, self.store = url, s3_store(url, write=write)
        self._sizes: dict[str, int] = {}
        self._sent: dict[str, tuple[int, str]] = {}  # size and ETag of what was put
        self._is_tried = False
        self._etag: str | None = None

    @contextmanager
    def get(self, path: str) -> Iterator[Iterable[bytes]]:
        import obstore

        result = obstore.get(self.store, path)
        yield (bytes(chunk) for chunk in result.stream(min_chunk_size=_PIECE))

    def sizes(self) -> dict[str, int]:
        import obstore

        with explained(self.url):
            pages = list(obstore.list(self.store))
        self._sizes = {meta["path"]: meta["size"] for page in pages for meta in page}
        return self._sizes

    def read(self, path: str) -> bytes:
        return read(self, path)

    def unfinished(self) -> Objects:
        return {}  # what no seal lists is replaced

    def root(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return self.read("zarr.json")
        return None

    def put_root(self, change: Callable[[bytes | None], bytes]) -> None:
        import obstore

        self._require_conditional_puts()
        for attempt in range(ATTEMPTS):
            before, etag = None, "create"
            with suppress(FileNotFoundError), explained(f"{self.url}/zarr.json"):
                found = obstore.get(self.store, "zarr.json")
                before, etag = bytes(found.bytes()), found.meta["e_tag"] or ""
            content = change(before)
            if content == before or self._put("zarr.json", content, etag):
                return
            wait(attempt)
        raise busy(self.url)

    def send(
        self, group: Objects, source: Source, advance: Advance, check: Check = accept
    ) -> Objects:
        self._require_conditional_puts()
        kept: dict[str, Object] = {}
        created: list[str] = []

        def put(path: str) -> None:
            value = group[path]
            data = source.read(path, value)
            # An interrupted call or another writer may have created it.
            is_present = path in self._sizes or not self._put(path, data, "create")
            if not is_present:
                created.append(path)
            elif not self._has(path, data):
                if "/commits/" in path:
                    kept[path] = theirs = text_object(self.read(path).decode())
                    if not is_same(path, value, theirs):
                        raise conflict(path, self.url)
                else:
                    self._replace(path, data, value.digest)
            advance(len(data))

        tables = {p: value for p, value in group.items() if p.startswith("prompts/")}
        for paths in rounds(tables):
            in_parallel(put, paths, max_threads=SENT_AT_ONCE)
        if tables:
            self._claim(tables, created, check)
        for paths in rounds(group.keys() - tables):
            in_parallel(put, paths, max_threads=SENT_AT_ONCE)
        # Another push may have replaced an object before it saw the commit.
        for path in self._changed(group):
            self._restore(path, source.read(path, group[path]))
        return kept

    def _claim(self, tables: Objects, created: list[str], check: Check) -> None:
        """List tables in the index, or remove those that this push has created."""
        import obstore

        try:
            claim(self, tables, check)
        except BankError:
            with explained(self.url):
                obstore.delete(self.store, created)
            raise

    def _require_conditional_puts(self) -> None:
        """Refuse a store that ignores conditions, where two pushes could destroy each other."""
        import obstore

        if self._is_tried:
            return
        name = f".logitbank-{uuid.uuid4().hex}"
        is_new, is_again = (self._put(name, b"logitbank", "create") for _ in range(2))
        is_other = self._put(name, b"logitbank", '"00000000000000000000000000000000"')
        with explained(self.url):
            obstore.delete(self.store, [name])
        if not is_new or is_again or is_other:
            raise RemoteError(
                f"{self.url} ignores the conditions If-None-Match and If-Match, so two pushes could"
                " destroy each other. Push to another store, or to a folder."
            )
        self._is_tried = True

    def _replace(self, path: str, data: bytes, digest: Digest) -> None:
        """Replace an object that no commit lists, or that differs from its commit.

        It is read before, and put back if another push has committed it meanwhile.
        """
        import obstore

        for _ in range(ATTEMPTS):
            if self._is_claimed(path, digest):
                raise conflict(path, self.url)
            with explained(f"{self.url}/{path}"):
                found = obstore.get(self.store, path)
                before, etag = bytes(found.bytes()), found.meta["e_tag"] or ""
            if before == data:
                return
            if not self._put(path, data, etag):
                continue
            if self._is_claimed(path, digest):
                with explained(f"{self.url}/{path}"):
                    mine = obstore.head(self.store, path)["e_tag"] or ""
                self._put(path, before, mine)
                raise conflict(path, self.url)
            return
        raise busy(self.url)

    def _restore(self, path: str, data: bytes) -> None:
        """Write an object of this push's commit again."""
        for _ in range(ATTEMPTS):
            etag = self._present([path]).get(path, (0, ""))[1]
            if self._put(path, data, f'"{etag}"' if etag else "create"):
                return
        raise busy(self.url)

    def _is_claimed(self, path: str, digest: Digest) -> bool:
        """Whether a commit needs other bytes than these at a path."""
        import obstore

        deposit = object_deposit(path)
        if deposit is None:
            last = last_object(path)
            return last == path or bool(self._present([last]))
        with explained(self.url):
            pages = list(obstore.list(self.store, prefix=f"{deposit}/commits"))
        names = [meta["path"] for page in pages for meta in page]
        if not names or not is_data(path):
            return bool(names)
        listed = committed_digests({name: self.read(name).decode() for name in names})
        return listed.get(path, digest) != digest

    def _present(self, paths: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Size and ETag of the objects that exist."""
        import obstore

        found = {}
        for path in paths:
            with suppress(FileNotFoundError), explained(f"{self.url}/{path}"):
                found[path] = _version(obstore.head(self.store, path))
        return found

    def _changed(self, group: Objects) -> list[str]:
        """Data and documents of deposits in a group that no longer are what was put."""
        import obstore

        found: dict[str, tuple[int, str]] = {}
        for deposit in {object_deposit(path) for path in group} - {None}:
            with explained(self.url):
                pages = list(obstore.list(self.store, prefix=deposit))
            found |= {meta["path"]: _version(meta) for page in pages for meta in page}
        return [
            path
            for path, put in self._sent.items()
            if path in group and object_deposit(path) and found.get(path, put) != put
        ]

    def current(self) -> dict[str, bytes]:
        import obstore

        try:
            with explained(f"{self.url}/{index.NAME}"):
                result = obstore.get(self.store, index.NAME)
                require_small(f"{self.url}/{index.NAME}", index.NAME, result.meta["size"])
                self._etag = result.meta["e_tag"]
                return {index.NAME: bytes(result.bytes())}
        except FileNotFoundError:
            self._etag = None
            return {}

    def replace(self, files: Mapping[str, bytes], before: Mapping[str, bytes]) -> bool:
        return all(self._put(name, data, self._etag or "create") for name, data in files.items())

    def _put(self, path: str, data: bytes, before: str) -> bool:
        """Replace an object that has this ETag, or "create" it; False if there is another."""
        import obstore

        errors = obstore.exceptions
        mode = "create" if before == "create" else {"e_tag": before}
        with explained(f"{self.url}/{path}"):
            try:
                made = obstore.put(self.store, path, data, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return False
        self._sent[path] = _version({"size": len(data), **made})
        return True

    def _has(self, path: str, data: bytes) -> bool:
        """Whether an existing object has these bytes."""
        import obstore

        with explained(f"{self.url}/{path}"):
            meta = obstore.head(self.store, path)
        # The ETag of an object that came in one part saves downloading it.
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        size, etag = self._sent[path] = _version(meta)
        return size == len(data) and (etag == md5 or self.read(path) == data)


def _version(meta: Any) -> tuple[int, str]:
    """Size and ETag of an object, without the quotes of the ETag."""
    return meta["size"], (meta["e_tag"] or "").strip('"')


def s3_store(url: str, *, write: bool = False) -> Any:
    """The store of obstore at an `s3://bucket/prefix`."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise MissingExtraError(
            f"{url} needs obstore. Fix: pip install 'logitbank[remote]'"
        ) from error
    check_environment()
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    endpoints = [v for k, v in os.environ.items() if k.startswith("AWS_ENDPOINT")]
    options: Any = {
        "client_options": {
            "allow_http": any(endpoint.startswith("http://") for endpoint in endpoints),
            "timeout": f"{OBJECT_S}s",
        },
        "retry_config": {
            "max_retries": 4,
            "backoff": {"init_backoff": timedelta(milliseconds=100)},
            "retry_timeout": timedelta(minutes=5),
        },
    }
    if "AWS_SKIP_SIGNATURE" not in os.environ and not write:
        # Without credentials, obstore asks the machine for some and takes ten seconds to fail.
        options["skip_signature"] = not any(name in os.environ for name in _CREDENTIALS)
    return S3Store(bucket, prefix=prefix or None, **options)
