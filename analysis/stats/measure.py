"""Measures: numbers that are made of means of items."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, overload

if TYPE_CHECKING:
    import polars as pl

    from logitbank.analysis.frames.expressions import Floats


class Smooth(NamedTuple):
    """A smooth function of means, at every checkpoint."""

    value: "Floats"
    """(c,)"""
    slopes: "Floats"
    """(c, k) its derivative by each mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number that is made of means of items: a mean, a difference, or a function of means.

    An item belongs to a part. A side of the measure is the mean over its parts of the mean over
    the items of each; the number is `plus` minus `minus`, times `scale`, through `link`. Or it is
    the least of `functions`.
    """

    name: str
    group: str = ""
    """The value that distinguishes measures of one name."""
    text: str = ""
    """As sentences name it."""
    item: str = ""
    """What an item of it is called, if that is not the word of the family."""
    form: str = ".3f"
    plus: tuple[str, ...] = ("",)
    minus: tuple[str, ...] = ()
    share: bool = False
    """Whether values of items are 0, 1, or ½ for a tie, so that intervals are those of shares."""
    scale: float = 1.0
    limits: tuple[float, float] | None = None
    """The least and the greatest value that it can have, which end its interval."""
    ranks: bool = False
    """Whether values are ranks in a vocabulary. Their axis is logarithmic, and their mean has no
    interval: that of such skewed numbers is too short."""
    reference: float | None = None
    """The value without any effect, such as a share of 50 %, if there is one."""
    meaning: str = ""
    """What the reference means: "no preference"."""
    link: Literal["exp", "geometric"] | None = None
    """`exp` of a mean of logarithms, such as a perplexity; the geometric mean of values, which is
    `exp` of the mean of their logarithms."""
    functions: "Callable[[Floats], Sequence[Smooth]] | None" = None
    """Functions of the means (c, k) of the `plus` parts, each the mean over option orders. A number
    with a peak, where it has no derivative, is the least of two smooth functions."""

    @property
    def key(self) -> str:
        """In the column `measure` of a summary."""
        return f"{self.name}, {self.group}" if self.group else self.name


def ratio(means: "Floats") -> Sequence[Smooth]:
    """The first of two means (c, 2) by the second; NaN where that is 0."""
    import numpy as np  # a family is read by every command, most of which compute nothing

    one, other = means.T
    other = np.where(other > 0, other, np.nan)
    return [Smooth(one / other, np.stack([1 / other, -one / other**2], axis=1))]


class View:
    """A table under a name that people know: some measures of a table of measures, side by side.

    It has the columns of `side_by_side`. In the class of a result, it is that table of the result's
    measures.
    """

    def __init__(self, *measures: Measure, by: str = "") -> None:
        self.measures, self.by = measures, by

    def of(self, table: "pl.DataFrame") -> "pl.DataFrame":
        """This view of a table of measures."""
        from logitbank.analysis.stats.views import side_by_side

        measures = [(each.key, each.name, each.group) for each in self.measures]
        return side_by_side(table, measures, by=self.by)

    @overload
    def __get__(self, result: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, result: Any, owner: Any = None) -> "pl.DataFrame": ...
    def __get__(self, result: Any, owner: Any = None) -> "Self | pl.DataFrame":
        return self if result is None else self.of(result.measures)
