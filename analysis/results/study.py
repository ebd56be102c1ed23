"""What every family of metrics gives: a result with its sentences."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from logitbank.analysis.results.files import Result
from logitbank.analysis.results.words import Summary

R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True)
class Study(Generic[R]):
    """A result with its sentences and what was written."""

    result: R
    summary: Summary
    report: Path | None = None
    """The HTML page, where a folder was given."""
