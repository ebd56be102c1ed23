"""Ask again, later, what a server refused for now: the one place for rate limits and backoff."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

LONG_S = 5.0
"""Who waits longer than this says for what."""
_listeners: list[Callable[[str], None]] = []


@contextmanager
def waits_told(listener: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile, long waits are told to `listener`, in the threads that wait.

    Of several listeners, the one that came last is told.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell_wait(text: str) -> None:
    """Say what is waited for, to whoever listens."""
    for listener in _listeners[-1:]:
        listener(text)


class Patience:
    """Shared by all threads that ask one server; a wait that it names holds for all of them.

    Parameters
    ----------
    tries
        How often to ask before its answer is final.
    first_s
        Wait before the second try; each following one is twice as long, up to `longest_s`.
    told_s
        Longest wait that a server may ask for. The hub counts requests in windows of 5 minutes.
    """

    def __init__(
        self,
        *,
        tries: int = 7,
        first_s: float = 1.0,
        longest_s: float = 60.0,
        told_s: float = 600.0,
    ) -> None:
        self.tries, self.first_s = tries, first_s
        self.longest_s, self.told_s = longest_s, told_s
        self._not_before = 0.0
        self._lock = threading.Lock()

    def call(self, attempt: Callable[[], T], wait: Callable[[Exception], float | None]) -> T:
        """What `attempt` returns, at last, or the last error that it raised.

        `wait` says of an error how many seconds its server told to wait, 0 where it told nothing,
        and None where asking again would not help.
        """
        for tried in range(1, self.tries + 1):
            self._hold()
            try:
                return attempt()
            except Exception as error:
                server_wait_s = wait(error)
                if server_wait_s is None or server_wait_s > self.told_s or tried == self.tries:
                    raise
                why = str(error).strip().partition("\n")[0] or type(error).__name__
            if server_wait_s:
                self._all_wait(server_wait_s)
            else:
                pause = min(self.longest_s, self.first_s * 2 ** (tried - 1))
                if pause >= LONG_S:
                    tell_wait(
                        f"{why}; asking again in {pause:.0f} s, {tried} of {self.tries} tries"
                    )
                time.sleep(pause)
        raise AssertionError("at least one try")

    def _all_wait(self, seconds: float) -> None:
        """Let all threads wait as long as a server asked; said once for all that it refused."""
        with self._lock:
            until, before = time.monotonic() + seconds, self._not_before
            self._not_before = max(before, until)
        if seconds >= LONG_S and until - before >= LONG_S:
            tell_wait(f"the server limits requests and asks to wait; going on in {seconds:.0f} s")

    def _hold(self) -> None:
        while (left := self._not_before - time.monotonic()) > 0:
            time.sleep(left)
