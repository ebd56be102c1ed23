"""The first screen of a page: which finding is its message, and the figure that shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from logitbank.analysis.report.part import Part
from logitbank.analysis.results.message import Message

if TYPE_CHECKING:
    from logitbank.analysis.drawing.sheet import Interactive


@dataclass(frozen=True, slots=True)
class First:
    """A figure of a part, above all parts, and what is said with it."""

    part: str
    """The part's id."""
    figure: str
    """The kind of the figure."""
    message: Message | None = None

    def series_of(self, figure: "Interactive") -> str:
        """What the figure calls the model and run that the message is about; nothing for all."""
        if self.message is None:
            return ""
        model, *others = [text for text in self.message.series if text]
        names = {trace["series"] for trace in figure.traces}
        # A name has of the others those that differ between series, in this order.
        for size in range(len(others), -1, -1):
            for kept in combinations(others, size):
                if (name := " ".join([model, *kept])) in names:
                    return name
        return ""


def first_of(parts: Sequence[Part]) -> First | None:
    """The message of a page, and its figure; a page without a message begins with a figure.

    Parts are in the order of a report: the first whose message is a change point, else the first
    that has one.
    """
    saying = [
        (part, part.message)
        for part in parts
        if part.message and part.message.figure in part.figures
    ]
    for part, message in sorted(saying, key=lambda pair: not pair[1].change_point):
        return First(part.id, message.figure, message)
    return next((First(part.id, next(iter(part.figures))) for part in parts if part.figures), None)
