"""Bytes that are verified against a commit, a sidecar or a document before they are parsed.

A process computes the SHA-256 of a file once. It remembers size, times and inode, so a later check
costs one `stat`. Without that, each read of one row would hash a shard of 256 MB again. The next
process finds bytes that decay on the disk between two checks.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from logitbank.errors import DamagedError
from logitbank.store.files import documents, objects
from logitbank.store.files.documents import SELF_DIGEST
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel

_SETTLED_NS = 10**9
"""Age from which a file's times identify its version. Clocks of file systems tick every few ms (4
on ext4, 1,000 on old NFS), so two writes in quick succession may have the same time."""


class Stamp(NamedTuple):
    """Identifies a version of a file without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def from_status(cls, status: os.stat_result) -> Self:
        return cls(
            *(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
        )

    @property
    def settled(self) -> bool:
        """Whether another version would have another stamp."""
        return time.time_ns() - max(self.mtime_ns, self.ctime_ns) > _SETTLED_NS


_VERIFIED: dict[tuple[str, Digest], Stamp] = {}
"""Stamps of verified files, by path and digest: the one cache of this package that all share."""


def require(expected: Mapping[Path, Digest]) -> None:
    """Refuse files that are not what was committed. Many are read in threads.

    Raises FileNotFoundError, or DamagedError that names the file.
    """
    for path in unsound(expected):
        committed, size = expected[path].bytes, path.stat().st_size
        differs = "its SHA-256 differs"
        if size != committed:
            differs = f"it has {size:,} bytes instead of {committed:,}"
        raise DamagedError(f"{path} differs from its commit: {differs}. Run `logitbank verify`.")


def is_known(name: str, expected: Digest) -> bool:
    """Whether a file was verified before and has not changed; FileNotFoundError if it is gone."""
    stamp = _VERIFIED.get((name, expected))
    return stamp is not None and stamp == file_stamp(name)


def unsound(expected: Mapping[Path, Digest]) -> list[Path]:
    """The files with other bytes than expected.

    Raises FileNotFoundError, or DamagedError for a folder or pipe.
    """
    looks = [(path, digest, file_stamp(path)) for path, digest in expected.items()]
    unseen = [look for look in looks if _VERIFIED.get((str(look[0]), look[1])) != look[2]]
    are_sound = in_parallel(lambda look: _is_sound(*look), unseen)  # hashlib frees the GIL
    return [path for (path, _, _), is_sound in zip(unseen, are_sound, strict=True) if not is_sound]


def document(path: Path | str, *holder: str) -> dict[str, Any]:
    """The JSON object in a file that `documents.signed` wrote, verified.

    `holder` names the members that lead to the object with the digest. Raises FileNotFoundError, or
    DamagedError if it is not a JSON object or has another digest.
    """
    status, data = objects.read_file(path, most=documents.MAX_JSON)
    content = documents.parse_json(path, data)
    if holder:  # a seal has the digest of its deposit's attributes, which need not be read again
        _remember(path, objects.compute_digest(data), Stamp.from_status(status))
    if not verify_self_digest(data, content, *holder):
        raise DamagedError(
            f"{path} was changed: its SHA-256 differs from its member `sha256`. Run"
            " `logitbank verify`."
        )
    return content


def verify_self_digest(data: bytes, content: Any, *holder: str) -> bool:
    """Whether the digest in a document is that of its text without it.

    The member is cut out of the text: writing the document again takes a hundred times as long.
    """
    depth = 1
    for name in holder:
        content = content.get(name) if isinstance(content, dict) else None
        depth += 1
    digest = content.get(SELF_DIGEST) if isinstance(content, dict) else None
    if not isinstance(digest, str):
        return False
    before, member, after = data.partition(f',\n{"  " * depth}"{SELF_DIGEST}": "{digest}"'.encode())
    return bool(member) and hashlib.sha256(before + after).hexdigest() == digest


def file_stamp(path: Path | str) -> Stamp:
    return Stamp.from_status(os.stat(path))


def _is_sound(path: Path, expected: Digest, stamp: Stamp) -> bool:
    """Whether a file has the expected bytes; if so, its stamp is remembered."""
    objects.require_file(path)
    if stamp.size != expected.bytes or objects.digest(path) != expected:
        return False
    _remember(path, expected, stamp)
    return True


def _remember(path: Path | str, digest: Digest, stamp: Stamp) -> None:
    if stamp.settled:
        _VERIFIED[str(path), digest] = stamp


@contextmanager
def copying_to(target: Path | str) -> Iterator[None]:
    """Adds to an error about damage that the copy is not whole."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(
            f"{error} Until the same command has ended, {target} lacks results."
        ) from error
