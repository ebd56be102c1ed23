"""Values that several analyses of one report compute from the same scan."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class ScanCache:
    """Values by key, each computed by the first analysis that needs it.

    A report passes one cache to every analysis. An analysis that reads all scores of a prompt set
    stores values for others, such as the gap that a trade-off compares with performance.

    >>> cache = ScanCache()
    >>> cache.get("gap", lambda: 1), cache.get("gap", lambda: 2)
    (1, 1)
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; `make` computes it if it is not stored."""
        if key not in self._values:
            self._values[key] = make()
        value: T = self._values[key]
        return value

    def put(self, key: Hashable, value: object) -> None:
        """Store a value for other analyses."""
        self._values[key] = value


def scan_key(name: str, prompts: str, models: Sequence[str] | None) -> tuple[Hashable, ...]:
    """The key of values of a prompt set of these models, or of all."""
    return (name, prompts, None if models is None else tuple(models))
