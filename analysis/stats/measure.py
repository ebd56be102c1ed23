"""Measures: numbers that are made of means of items."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
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
    form: str = ".3f"
    plus: tuple[str, ...] = ("",)
    minus: tuple[str, ...] = ()
    share: bool = False
    """Whether values of items are 0, 1, or ½ for a tie, so that intervals are those of shares."""
    scale: float = 1.0
    link: Literal["exp"] | None = None
    """`exp` of a mean of logarithms: a perplexity, or a geometric mean."""
    functions: "Callable[[Floats], Sequence[Smooth]] | None" = None
    """Functions of the means (c, k) of the `plus` parts, each the mean over option orders. A number
    with a peak, where it has no derivative, is the least of two smooth functions."""

    @property
    def key(self) -> str:
        """In the column `measure` of a summary."""
        return f"{self.name}, {self.group}" if self.group else self.name
