"""Push to a prefix of an S3-compatible store."""

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from functools import partial

from logitbank.errors import RemoteError
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Object
from logitbank.store.share.moves import clash, rounds
from logitbank.store.share.places import Say, explained, place_at, s3_store
from logitbank.store.share.targets import SourceBank, known_objects

_SENT_AT_ONCE = 4  # each holds one object in memory
_ATTEMPTS = 20


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
        self._vouched = index.vouched(texts)
        return stored

    def send(self, group: Mapping[str, Object], source: SourceBank, say: Say) -> None:
        def put(path: str) -> None:
            data = source.read(path, group[path])
            # There already if an earlier call was interrupted, or somebody was quicker.
            if not self._put(path, data, "create") and not self._has(path, data):
                raise clash(path, group[path].digest, self._vouched, self.name)
            say(len(data))

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
            answer = self._place.read(index.NAME, limit=index.MAX_BYTES)
        except FileNotFoundError:
            return None, None
        assert answer is not None
        return answer

    def _read(self, path: str) -> bytes:
        answer = self._place.read(path, limit=2**30)
        assert answer is not None
        return answer.data

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
