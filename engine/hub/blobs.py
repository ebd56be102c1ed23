"""Large files in the cache of a hub: continued where they broke off, proved, and evicted.

It knows the layout of that cache and no hub. A file is kept once under the digest of its content,
in `blobs`, and the snapshots of revisions point to it. What is ours is in a folder beside them:
`<digest>.part`, a file on its way, and `<digest>.evictable`, the mark of one that was fetched
under a disk budget and that nobody else has asked for.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from logitbank.engine.hub.patience import LONG_S, tell_wait
from logitbank.engine.hub.ranges import (
    PAUSE_S,
    ChangedError,
    Connections,
    NoRangesError,
    Ranges,
)
from logitbank.engine.hub.receive import Body, Receive, receive_some
from logitbank.errors import WeightsError

_READ_BYTES = 1 << 20
_TRIES = 7
"""Answers in a row that may end no later in a file than one before them did."""


@dataclass(frozen=True, slots=True)
class Blob:
    """One large file, whichever revisions hold it."""

    repository: Path
    """Its repository's folder in the cache."""
    name: str
    size: int
    """Bytes."""
    sha256: str

    @property
    def path(self) -> Path:
        return self.repository / "blobs" / self.sha256

    @property
    def part(self) -> Path:
        return self.repository / "logitbank" / f"{self.sha256}.part"

    @property
    def mark(self) -> Path:
        return self.repository / "logitbank" / f"{self.sha256}.evictable"

    @property
    def present(self) -> bool:
        return self.path.is_file()

    @property
    def left(self) -> int:
        """Bytes still to be fetched."""
        if self.present:
            return 0
        part = self.part
        return max(0, self.size - (part.stat().st_size if part.is_file() else 0))

    @property
    def evictable(self) -> bool:
        """True unless the user has it, or a part of it, without a budget."""
        return self.mark.exists() or not (self.present or self.part.exists())

    def keep(self) -> None:
        """Never evict it: the user has asked for it without a budget."""
        self.mark.unlink(missing_ok=True)

    def fetch(
        self,
        receive: Receive,
        connections: Connections,
        *,
        patiently: Callable[[Callable[[], int]], int],
        broken: tuple[type[Exception], ...],
        on_bytes: Callable[[int], None],
    ) -> None:
        """Put the file into the cache, going on with a part of it that is there.

        Where much is to come, it comes over several connections, and over one where that failed
        in any way: what one connection brings, or cannot bring, is final.

        Parameters
        ----------
        receive
            Opens the file from an offset on, up to another one or to its end.
        connections
            How many there may be, and from which size on.
        patiently
            Calls what it is given, again where that fails for now.
        broken
            What a connection raises that breaks.
        on_bytes
            Told how many bytes came, fewer than none where they must come again. What it raises
            stops the transfer.

        Raises
        ------
        WeightsError
            What came is not what the hub's digest says, twice; or all answers end before the file.
        """
        waiting = f"{self.name} is on its way in another process ({self.part}); waiting for it"
        with _locked(self.part, waiting) as file:
            if self.present:  # another thread or process was first
                self.part.unlink(missing_ok=True)
                return
            transfer = _Transfer(file, self, on_bytes)
            wholes = 2  # a damaged transfer is rarely damaged twice
            if transfer.take_up():
                wholes += 1  # the part may be what is damaged
            if self.size - transfer.have >= connections.large_bytes:
                ranges = Ranges(
                    receive,
                    transfer.have,
                    self.size,
                    connections,
                    patiently=patiently,
                    broken=broken,
                )
                transfer.take_all(ranges, broken)
            while True:
                self._go_on(lambda: patiently(lambda: transfer.go_on(receive, broken)), transfer)
                if transfer.digest.hexdigest() == self.sha256:
                    break
                transfer.forget()
                wholes -= 1
                if not wholes:
                    raise WeightsError(
                        f"{self.name} came twice with another content than its digest says "
                        f"({self.sha256[:12]}); nothing of it is kept, fetch it again"
                    )
                tell_wait(f"{self.name} came with another content than its digest says; once more")
            file.flush()
            os.fsync(file.fileno())
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.part, self.path)

    def _go_on(self, ask: Callable[[], int], transfer: "_Transfer") -> None:
        """Ask for the rest until it is there.

        A server that sends no parts of files begins each answer anew: where it has less of the
        file than its listing says, or sends a page to log in, no answer brings more.
        """
        furthest, tries = transfer.have, 0
        while transfer.have < self.size:
            ask()
            tries = 0 if transfer.have > furthest else tries + 1
            furthest = max(furthest, transfer.have)
            if tries == _TRIES:
                raise WeightsError(
                    f"{self.name} has {self.size:,} bytes as its hub lists it, and {_TRIES} "
                    f"answers ended after {furthest:,} or before; a proxy or a page to log in may "
                    "answer in its place: check the network and HF_ENDPOINT, then fetch it again"
                )
            if transfer.have < self.size:
                time.sleep(PAUSE_S)


class _Transfer:
    """A file that grows, and the digest of what it has."""

    def __init__(self, file: BinaryIO, blob: Blob, on_bytes: Callable[[int], None]) -> None:
        self._file, self._size, self._on_bytes = file, blob.size, on_bytes
        self._name = blob.name
        self.have = 0
        self.digest = hashlib.sha256()

    def take_up(self) -> bool:
        """Read what is there; True where that is anything."""
        self._file.seek(0)
        while chunk := self._file.read(_READ_BYTES):
            self.digest.update(chunk)
            self.have += len(chunk)
        if self.have > self._size:
            self.forget()
        return self.have > 0

    def forget(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._on_bytes(-self.have)
        self.have, self.digest = 0, hashlib.sha256()

    def go_on(self, receive: Receive, broken: tuple[type[Exception], ...]) -> int:
        """Receive until the end, or until the connection breaks after some bytes came."""
        return receive_some(receive(self.have, None), self._begin, self._take, broken)

    def take_all(self, ranges: Ranges, broken: tuple[type[Exception], ...]) -> None:
        """Take what comes over several connections, as far as they go."""
        ended: tuple[type[Exception], ...] = (NoRangesError, *broken)
        with ranges:
            try:
                for chunk in ranges:
                    self._take(chunk)
            except ChangedError:
                self.forget()
            except ended:
                pass  # one connection goes on, and says what it meets

    def _begin(self, body: Body) -> None:
        if body.start != self.have:
            self.forget()

    def _take(self, chunk: bytes) -> bool:
        if self.have + len(chunk) > self._size:
            raise WeightsError(
                f"{self._name} has {self._size:,} bytes as its hub lists it, and more of it came;"
                " fetch it again"
            )
        self._file.write(chunk)
        self.digest.update(chunk)
        self.have += len(chunk)
        self._on_bytes(len(chunk))
        return True


@contextmanager
def _locked(path: Path, waiting: str) -> Iterator[BinaryIO]:
    """The file, made if need be, and nobody else's meanwhile: of threads and of processes.

    Where others have it for long, that is told by `waiting`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+b") as file:
            _lock(file, waiting)
            # Who held it before has moved it into place, perhaps.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return


def _lock(file: BinaryIO, waiting: str) -> None:
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(PAUSE_S)
    tell_wait(waiting)
    fcntl.flock(file, fcntl.LOCK_EX)


class Claim:
    """This process's use of a blob under a disk budget, until `evict`.

    Processes that share a cache hold a lock on the mark each, so that none evicts what another
    one is running.
    """

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        self.users: set[int] = set()
        blob.mark.parent.mkdir(parents=True, exist_ok=True)
        self._mark = blob.mark.open("ab")
        fcntl.flock(self._mark, fcntl.LOCK_SH)

    def release(self) -> None:
        """Leave the blob as it is."""
        self._mark.close()

    def evict(self, snapshots: Collection[Path]) -> bool:
        """Delete the blob, and what points to it from `snapshots`; True where that was done.

        Not where another snapshot points to it, another process uses it, or its mark is gone.
        """
        blob = self.blob
        with self._mark:
            try:
                fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if not blob.mark.exists():
                return False
            pointers = list(_pointers(blob))
            folders = {snapshot.resolve() for snapshot in snapshots}
            if any(pointer.parent.resolve() not in folders for pointer in pointers):
                blob.keep()
                return False
            for path in (*pointers, blob.path, blob.part, blob.mark):
                path.unlink(missing_ok=True)
            return True


def _pointers(blob: Blob) -> Iterator[Path]:
    for path in (blob.repository / "snapshots").rglob("*"):
        if path.is_symlink() and Path(os.readlink(path)).name == blob.sha256:
            yield path
