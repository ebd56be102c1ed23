"""The reader of banks: scores of a prompt set with its prompts, a few checkpoints at a time."""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from logitbank.analysis.frames.banks import Banks, choose_prompts, listed, open_banks
from logitbank.analysis.frames.batches import prompt_frames
from logitbank.analysis.frames.choose import ChoosePrompts
from logitbank.analysis.frames.expected import expected_token_counts
from logitbank.analysis.frames.prompt_sums import PromptSums, map_prompt_sums
from logitbank.store import Bank

T = TypeVar("T")


class ScanCache:
    """Values by key, each computed by the first analysis that needs it.

    A report passes one cache to every analysis.

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


@dataclass(frozen=True)
class Scores:
    """The scores of a prompt set in banks, and what analyses of one report share of them."""

    banks: Sequence[Bank]
    prompts: str
    models: Sequence[str] | None = None
    """Only these models; all if None."""
    cache: ScanCache = field(default_factory=ScanCache)
    steps: Collection[int | None] | None = None
    """Only these steps; all if None."""

    def cached(self, name: Hashable, make: Callable[[], T]) -> T:
        """A value of these scores; `make` computes it if it is not stored."""
        models = None if self.models is None else tuple(self.models)
        return self.cache.get((name, self.prompts, models), make)

    def frames(self, **options: Any) -> Sequence[pl.LazyFrame]:
        """Scans of whole checkpoints, a few at a time, in the order of each run."""
        return prompt_frames(self.banks, self.prompts, self.models, steps=self.steps, **options)

    def expected(self, columns: Sequence[str] = ()) -> pl.DataFrame:
        """The prompts and their tokens, as `sum_prompts` expects them, with these columns."""
        return expected_token_counts(self.banks, self.prompts, columns)

    def map_prompts(
        self, reduce: Callable[[PromptSums], T], *columns: str, more: Sequence[pl.Expr] = ()
    ) -> list[T]:
        """`reduce` of the sums of prompts, with these columns, of a few checkpoints at a time."""
        return map_prompt_sums(
            self.frames(), reduce, family=self.prompts, columns=columns, more=more,
            expected=self.expected(columns),
        )  # fmt: skip


def read_scores(
    banks: Banks,
    prompts: str | None = None,
    models: Sequence[str] | str | None = None,
    steps: Collection[int | None] | None = None,
    *,
    family: ChoosePrompts,
    default: str = "",
    cache: ScanCache | None = None,
) -> Scores:
    """Open banks with the scores of one prompt set.

    Parameters
    ----------
    prompts
        Its name; by default `default`, or the only one that `family` chooses.
    models, steps
        Only these; all if None.

    Raises
    ------
    UsageError
        No bank has the prompt set, or there are several to choose from.
    LogitbankError
        As `open_banks`.
    """
    models = listed(models)
    opened = open_banks(banks, models=models, prompts=prompts, family=family)
    name = choose_prompts(opened, prompts, default=default, family=family)
    return Scores(opened, name, models, cache or ScanCache(), steps)
