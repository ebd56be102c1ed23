"""What every family of metrics gives: a result with its sentences, and their files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import polars as pl

from logitbank.analysis.results.files import Result, write_report, write_tables
from logitbank.store.files.objects import require_outside

if TYPE_CHECKING:
    from matplotlib.figure import Figure


R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True)
class Study(Generic[R]):
    """A result with its sentences and what was written."""

    result: R
    summary: tuple[str, ...]
    report: Path | None
    """The HTML page, where a folder was given."""


def write_study(
    out: Path,
    result: Result,
    *,
    title: str,
    summary: Sequence[str],
    figures: "Mapping[str, Figure]",
    provenance: pl.DataFrame,
    in_report: Callable[[str], bool] = lambda _: True,
) -> Path:
    """Tables as CSV, figures as PNG and SVG, and the report, whose path is returned.

    The report shows the figures whose names `in_report` accepts.

    Raises
    ------
    UsageError
        The folder is a bank, or lies in one.
    """
    require_outside(out)
    out.mkdir(parents=True, exist_ok=True)
    write_tables(result, out / "tables", "csv")
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=200)
    report = out / "report.html"
    write_report(
        report,
        title=title,
        summary=summary,
        figures={name: figure for name, figure in figures.items() if in_report(name)},
        tables=result.tables(),
        provenance=provenance,
    )
    return report
