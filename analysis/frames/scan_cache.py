"""What several analyses of one report need of the same scan, made once."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class ScanCache:
    """Values by key, each made by whoever needs it first.

    A report passes one cache to every analysis. An analysis that reads all scores of a prompt set
    stores what others need of them, such as the gap that a trade-off sets against performance.

    >>> cache = ScanCache()
    >>> cache.get("gap", lambda: 1), cache.get("gap", lambda: 2)
    (1, 1)
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; made, if nobody has made or stored it."""
        if key not in self._values:
            self._values[key] = make()
        value: T = self._values[key]
        return value

    def put(self, key: Hashable, value: object) -> None:
        """Store a value that others may need."""
        self._values[key] = value
