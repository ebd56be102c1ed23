"""What every family of metrics gives: a result with its sentences."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from logitbank.analysis.results.tables import Result
from logitbank.analysis.results.words import Summary
from logitbank.notebook import html_list, printable

R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True, repr=False)
class Study(Generic[R]):
    """A result with its sentences and what was written."""

    result: R
    summary: Summary
    report: Path | None = None
    """The HTML page, where a folder was given."""

    def __repr__(self) -> str:
        first = f": {self.summary[0]}" if self.summary else ""
        return printable(f"<Study of {type(self.result).__name__}{first}>")

    def _repr_html_(self) -> str:
        return html_list(type(self.result).__name__, self.summary)
