"""S3-compatible stores through obstore: puts are exclusive, the index is replaced by its ETag."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from logitbank.errors import MissingExtraError
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Objects
from logitbank.store.progress import Advance
from logitbank.store.share.moves import conflict, rounds
from logitbank.store.share.remote import CHUNK_BYTES, explained, read, require_small
from logitbank.store.share.targets import SENT_AT_ONCE, Source
from logitbank.store.share.urls import check_environment

_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


class S3:
    """A prefix of a store, to read from and to write to."""

    card_url = None

    def __init__(self, url: str, *, write: bool = False) -> None:
        self.url, self.store = url, s3_store(url, write=write)
        self._sizes: dict[str, int] = {}
        self._etag: str | None = None

    @contextmanager
    def get(self, path: str) -> Iterator[Iterable[bytes]]:
        import obstore

        result = obstore.get(self.store, path)
        yield (bytes(chunk) for chunk in result.stream(min_chunk_size=CHUNK_BYTES))

    def sizes(self) -> dict[str, int]:
        import obstore

        with explained(self.url):
            pages = list(obstore.list(self.store))
        self._sizes = {meta["path"]: meta["size"] for page in pages for meta in page}
        return self._sizes

    def read(self, path: str) -> bytes:
        return read(self, path)

    def send(self, group: Objects, source: Source, advance: Advance) -> None:
        def put(path: str) -> None:
            data = source.read(path, group[path])
            # An interrupted call or another writer may have created it.
            is_present = path in self._sizes or not self._put(path, data, "create")
            if is_present and not self._has(path, data):
                raise conflict(path, self.url)
            advance(len(data))

        for paths in rounds(group):
            in_parallel(put, paths, max_threads=SENT_AT_ONCE)

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

    def replace(
        self, files: Mapping[str, bytes], before: Mapping[str, bytes], replaced: Sequence[str]
    ) -> bool:
        import obstore

        for name, data in files.items():
            if not self._put(name, data, self._etag or "create"):
                return False
        with explained(self.url):
            if replaced:
                obstore.delete(self.store, list(replaced))
        return True

    def _put(self, path: str, data: bytes, before: str) -> bool:
        """Replace an object that has this ETag, or "create" it; False if there is another."""
        import obstore

        errors = obstore.exceptions
        mode = "create" if before == "create" else {"e_tag": before}
        with explained(f"{self.url}/{path}"):
            try:
                obstore.put(self.store, path, data, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return False
        return True

    def _has(self, path: str, data: bytes) -> bool:
        """Whether an existing object has these bytes."""
        import obstore

        with explained(f"{self.url}/{path}"):
            meta = obstore.head(self.store, path)
        # The ETag of an object that came in one part saves downloading it.
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        is_same_size = meta["size"] == len(data)
        return is_same_size and ((meta["e_tag"] or "").strip('"') == md5 or self.read(path) == data)


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
            "timeout": "2h",  # of a whole object; the default, 30 s, is less than a shard may take
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
