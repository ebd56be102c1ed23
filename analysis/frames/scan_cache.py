"""Values that several analyses of one report compute from the same scan."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from logitbank.analysis.frames.batches import prompt_frames
from logitbank.analysis.frames.expected import expected_token_counts
from logitbank.store import Bank

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


@dataclass(frozen=True)
class ScoreSource:
    """The scores of a prompt set in banks, and what analyses of one report share of them."""

    banks: Sequence[Bank]
    prompts: str
    models: Sequence[str] | None = None
    """Only these models; all if None."""
    cache: ScanCache = field(default_factory=ScanCache)
    steps: Sequence[int | None] | None = None
    """Only these steps; all if None."""

    def key(self, *names: Hashable) -> tuple[Hashable, ...]:
        """The key in the cache of values of these scores."""
        return (*names, self.prompts, None if self.models is None else tuple(self.models))

    def cached(self, name: Hashable, make: Callable[[], T]) -> T:
        """A value of these scores; `make` computes it if it is not stored."""
        return self.cache.get(self.key(name), make)

    def frames(self, **options: Any) -> Sequence[pl.LazyFrame]:
        """The scans of `prompt_frames`."""
        return prompt_frames(self.banks, self.prompts, self.models, steps=self.steps, **options)

    def expected(self, columns: Sequence[str] = ()) -> pl.DataFrame:
        """The prompts and their tokens, as `sum_prompts` expects them, with these columns."""
        return expected_token_counts(self.banks, self.prompts, columns)
