"""A clean stop: requested by a signal or a clock, and enforced after a time of grace."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_S = 25.0
"""Seconds in which the current blocks may still be finished."""


class Stopping:
    """Whether a run should stop: after the current blocks, or when the time of grace is over."""

    def __init__(self, *, deadline: float | None = None) -> None:
        """`deadline` is the time (seconds since 1970) at which this process is killed."""
        self._deadline = deadline
        self._since: float | None = None
        self._watched = False

    def request(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    @property
    def requested(self) -> bool:
        if self._deadline is not None and time.time() > self._deadline - GRACE_S:
            self.request()
        return self._since is not None

    @property
    def over(self) -> bool:
        """Whether the time of grace has passed."""
        return self._since is not None and time.monotonic() - self._since > GRACE_S

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """Make SIGTERM request a stop while `watched` is active, and act as Ctrl-C otherwise.

        No effect outside the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handler(_number: int, _frame: FrameType | None) -> None:
            # While planning or waiting for a download. A second signal does not disturb a stop.
            if not self._watched and self._since is None:
                raise KeyboardInterrupt
            self.request()

        before = signal.signal(signal.SIGTERM, handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Declare that the code inside polls `requested`."""
        self._watched = True
        try:
            yield
        finally:
            self._watched = False
