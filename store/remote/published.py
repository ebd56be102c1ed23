"""The index of what lies at a URL, in as few bytes as its publisher makes possible.

`index.json` alone says what is there. The compressed one beside it may be older, or newer, where a
push was stopped or its writer knows of no such thing. So it counts only where its last bytes, with
the digest of all before them, are those of `index.json`; else that is read.
"""

from collections.abc import Mapping
from typing import NamedTuple

from logitbank.errors import BankFormatError, DamagedError
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Index, Object
from logitbank.store.remote.explained import RefusedError
from logitbank.store.remote.mirror import LOG
from logitbank.store.remote.remote import Remote


class Published(NamedTuple):
    """What is at one place."""

    objects: Mapping[str, Object]
    parts: int
    """How many places the bank is divided among."""
    etag: str | None
    """ETag of `index.json`; None where there is none."""


def is_unchanged(remote: Remote, *, unless: str | None) -> bool:
    """Whether `index.json` still has an ETag; of one that has another, a byte is read."""
    if unless is None:
        return False
    try:
        return remote.read_range(index.NAME, 0, 1, unless=unless) is None
    except (FileNotFoundError, RefusedError):
        return False


def read_index(remote: Remote) -> Published:
    """What is at a place, by its index; where it has none and can list, by its commits.

    Raises
    ------
    BankFormatError
        There is no bank, or none that can be read there without an index.
    DamagedError
        Its index is none.
    RemoteError
        The place cannot be reached, or refuses.
    """
    return _compressed(remote) or _plain(remote)


def _compressed(remote: Remote) -> Published | None:
    """What the compressed index says; None where there is none of `index.json` as it is."""
    where = f"{remote.url}/{index.COMPRESSED}"
    try:
        packed = remote.read(index.COMPRESSED, limit=index.MAX_BYTES)
        assert packed is not None
        data = index.decompress(packed.data, where=where)
        end = index.end_of(data, where=where)
        now = remote.read_range(index.NAME, len(data) - len(end), len(end))
        assert now is not None
        if now.data != end:
            return None
        return _published(index.parse(data, where=where), now.etag)
    except (FileNotFoundError, RefusedError):
        return None
    except DamagedError as error:
        LOG.warning("%s; %s/%s is read in its place", error, remote.url, index.NAME)
        return None


def _plain(remote: Remote) -> Published:
    where = f"{remote.url}/{index.NAME}"
    try:
        answer = remote.read(index.NAME, limit=index.MAX_BYTES)
        assert answer is not None
        return _published(index.parse(answer.data, where=where), answer.etag)
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
    listed = index.complete(listing, {}, lambda paths: in_parallel(read_small, paths))
    return Published(listed, 1, None)


def _published(read: Index, etag: str | None) -> Published:
    return Published(read.objects, read.parts, etag)
