"""A clean stop: asked for by a signal or a clock, and over after a time of grace."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopping:
    """Whether a run should stop: after the blocks at hand, and at the latest when grace is over."""

    def __init__(
        self, *, at: float | None = None, grace_s: float = 25.0, signals: bool = True
    ) -> None:
        """`at` is the time (seconds since 1970) by which all should have ended.

        Without `signals`, SIGTERM is left to whom this process belongs.
        """
        self._at, self._grace_s, self._signals = at, grace_s, signals
        self._since: float | None = None
        self._watched = False

    def ask(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    @property
    def requested(self) -> bool:
        if self._at is not None and time.time() > self._at - self._grace_s:
            self.ask()
        return self._since is not None

    @property
    def over(self) -> bool:
        """The time of grace has passed."""
        return self._since is not None and time.monotonic() - self._since > self._grace_s

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """Meanwhile, SIGTERM asks for it where somebody watches, and else is as Ctrl-C.

        Without effect outside the main thread.
        """
        here = threading.current_thread() is threading.main_thread()
        if not (self._signals and here):
            yield
            return

        def handler(_number: int, _frame: FrameType | None) -> None:
            # Planning, say, or waiting for a download. A second signal does not disturb a stop.
            if not self._watched and self._since is None:
                raise KeyboardInterrupt
            self.ask()

        before = signal.signal(signal.SIGTERM, handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Meanwhile, who runs this looks at `requested`."""
        self._watched = True
        try:
            yield
        finally:
            self._watched = False
