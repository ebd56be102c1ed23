"""One large file over several connections: parts of it are asked for side by side, taken in order.

A server, or a network on the way, often limits each connection, and not all of them together. What
comes before its turn waits in memory, so that a file on the disk is always a beginning of what it
will be: whoever is killed loses what waits, and goes on from there.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from logitbank.engine.hub.receive import Body, Receive, receive_some

PAUSE_S = 0.2
"""Before going on after a connection that broke; one that gave nothing waits longer."""


@dataclass(frozen=True, slots=True)
class Connections:
    """How many connections a file is fetched over, shared by all files of one hub."""

    a_file: int = 4
    """Most for one file."""
    large_bytes: int = 64 << 20
    """Files with less than this to come are fetched over one."""
    piece_bytes: int = 8 << 20
    """Asked for at once. Large against the round trip of a request, small against memory."""
    spare: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(6))
    """Connections beyond one a file, of all files together."""

    @property
    def ahead(self) -> int:
        """Pieces of a file that may be on their way or wait for their turn.

        Twice the connections: one that is half as fast as the others does not hold them up.
        """
        return 2 * self.a_file


class NoRangesError(Exception):
    """The server does not send the part of a file that it is asked for."""


class ChangedError(Exception):
    """Two parts of a file are of different contents."""


@dataclass(slots=True)
class _Piece:
    start: int
    stop: int
    chunks: SimpleQueue[bytes] = field(default_factory=SimpleQueue)
    """What came of it; nothing (`b""`) at its end."""
    failure: BaseException | None = None

    def take(self, chunk: bytes) -> bool:
        """Keep what is within the piece; False where the server sends more than that.

        Whoever stops before an answer's end loses its connection, so an end is waited for.
        """
        within = chunk[: self.stop - self.start]
        self.start += len(within)
        if within:
            self.chunks.put(within)
        return len(within) == len(chunk)


class Ranges:
    """The content of a file from an offset on, chunk by chunk, until its threads are stopped.

    The first connection asks alone; the others begin once the server has sent it a part.

    Parameters
    ----------
    receive
        Opens a part of the file.
    start, size
        Where to begin, and where the file ends.
    patiently
        Calls what it is given, again where that fails for now.
    broken
        What a connection raises that breaks.
    """

    def __init__(
        self,
        receive: Receive,
        start: int,
        size: int,
        connections: Connections,
        *,
        patiently: Callable[[Callable[[], int]], int],
        broken: tuple[type[Exception], ...],
    ) -> None:
        self._receive, self._patiently, self._broken = receive, patiently, broken
        self._connections, step = connections, connections.piece_bytes
        self._pieces = [_Piece(at, min(at + step, size)) for at in range(start, size, step)]
        self._next = self._turn = 0
        """Indices of the piece to ask for and of the one to take."""
        self._version: str | None = None
        self._several = self._stopped = False
        self._changed = threading.Condition()

    def __enter__(self) -> "Ranges":
        self._start(self._fetch_all)
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        """Chunks in the order of the file.

        Raises
        ------
        NoRangesError, ChangedError
            One connection has to do, from here on or from the beginning.
        Exception
            One of those that are `broken`, to the end of all patience.
        """
        for index, piece in enumerate(self._pieces):
            while chunk := piece.chunks.get():
                yield chunk
            if piece.failure:
                raise piece.failure
            with self._changed:
                self._turn = index + 1
                self._changed.notify_all()

    def _start(self, work: Callable[[], None]) -> None:
        # Daemons: who stops does not wait for a server that is silent.
        threading.Thread(target=work, name="fetch-part", daemon=True).start()

    def _fetch_all(self) -> None:
        while self._fetch_next():
            pass

    def _help(self) -> None:
        more = True
        while more:
            with self._connections.spare:
                more = self._fetch_next()

    def _fetch_next(self) -> bool:
        """Bring the next piece; False where there is none, or this one failed."""
        with self._changed:
            self._changed.wait_for(self._may_go_on)
            if self._stopped or self._next == len(self._pieces):
                return False
            piece = self._pieces[self._next]
            self._next += 1
        try:
            while piece.start < piece.stop:
                self._patiently(lambda: self._go_on(piece))
                if piece.start < piece.stop:
                    time.sleep(PAUSE_S)
        except BaseException as error:  # raised where the piece is taken
            piece.failure = error
        piece.chunks.put(b"")
        return piece.failure is None

    def _may_go_on(self) -> bool:
        at_end = self._next == len(self._pieces)
        return self._stopped or at_end or self._next < self._turn + self._connections.ahead

    def _go_on(self, piece: _Piece) -> int:
        if self._stopped:
            raise InterruptedError("nobody waits for this part any more")

        def take(chunk: bytes) -> bool:
            return piece.take(chunk) and not self._stopped

        answer = self._receive(piece.start, piece.stop)
        return receive_some(answer, self._check, take, self._broken)

    def _check(self, body: Body) -> None:
        """Refuse what is no part of one content; let the other connections begin."""
        if not body.ranged:
            raise NoRangesError
        with self._changed:
            self._version = self._version or body.version
            if body.version and body.version != self._version:
                raise ChangedError
            if not self._several:
                self._several = True
                for _ in range(min(self._connections.a_file, len(self._pieces)) - 1):
                    self._start(self._help)
