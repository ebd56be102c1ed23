"""The end of every study: tables, figures and report, where a folder is given."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import polars as pl

from logitbank.analysis.drawing.figures import figures
from logitbank.analysis.results.files import Result, write_report, write_tables
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary
from logitbank.store import Readable
from logitbank.store.files.objects import require_outside

R = TypeVar("R", bound=Result)


def finish(
    result: R,
    summary: Summary,
    *,
    title: str,
    out: Path | None,
    banks: Sequence[Readable] = (),
    sources: Sequence[pl.DataFrame] = (),
    shown: Callable[[R], tuple[Collection[str], Sequence[str]]] | None = None,
) -> Study[R]:
    """The study of a result and, with `out`, its tables, figures and report in that folder.

    Parameters
    ----------
    title
        Of the report.
    banks, sources
        Where the numbers come from: banks, and tables about what else was read.
    shown
        Gives the names of the figures that the report shows, and sentences about the others; the
        report shows all figures if None.

    Raises
    ------
    UsageError
        The folder is a bank, or lies in one.
    """
    if out is None:
        return Study(result, summary)
    require_outside(out)
    out.mkdir(parents=True, exist_ok=True)
    write_tables(result, out / "tables", "csv")
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    drawn = figures(result)
    for name, figure in drawn.items():
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=200)
    names, about_others = shown(result) if shown else (drawn, ())
    report = out / "report.html"
    write_report(
        report,
        title=title,
        summary=[*summary, *about_others],
        figures={name: figure for name, figure in drawn.items() if name in names},
        tables=result.tables(),
        provenance=pl.concat([*(bank.info() for bank in banks), *sources], how="diagonal_relaxed"),
    )
    return Study(result, summary, report)


def models_of(result: Result) -> str:
    """The models that a result is about, for a title."""
    tables = [table for table in result.tables().values() if "model" in table.columns]
    return ", ".join(sorted({name for table in tables for name in table["model"].unique()}))
