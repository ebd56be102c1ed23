"""What a server answers when it is asked for a file, and taking it as far as it comes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple


class Body(NamedTuple):
    """An answer that is being received."""

    start: int
    """Where in the file it begins."""
    chunks: Iterator[bytes]
    ranged: bool = True
    """False where the server sent the whole file, whatever part was asked for."""
    version: str | None = None
    """The server's mark of the content (its ETag): equal marks are equal contents."""


Receive = Callable[[int, int | None], AbstractContextManager[Body]]
"""Opens a file from an offset on, up to another one or to its end."""


def receive_some(
    answer: AbstractContextManager[Body],
    begin: Callable[[Body], None],
    take: Callable[[bytes], bool],
    broken: tuple[type[Exception], ...],
) -> int:
    """Bytes that came until `take` wants no more, or the connection ended or broke after some.

    `begin` sees the answer before any of its content. What breaks before any came is raised.
    """
    came = 0
    try:
        with answer as body:
            begin(body)
            for chunk in body.chunks:
                came += len(chunk)
                if not take(chunk):
                    break
    except broken:
        if not came:
            raise
    if not came:
        raise ConnectionError("the answer was empty")
    return came
