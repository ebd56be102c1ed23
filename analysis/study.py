"""The result of every analysis: tables, findings, charts and notes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import polars as pl

from logitbank.analysis.finding import Finding
from logitbank.analysis.results.tables import Result, json_rows
from logitbank.errors import DrawingError
from logitbank.notebook import html_list, printable
from logitbank.store import Bank

if TYPE_CHECKING:
    from logitbank.analysis.charts.chart import Chart

R = TypeVar("R", bound=Result)


@dataclass(frozen=True, kw_only=True, repr=False)
class Study(Generic[R]):
    """A result with its findings, charts and sources."""

    result: R
    findings: tuple[Finding, ...]
    """The most important first."""
    details: tuple[Finding, ...] = ()
    """Findings about single models and runs, if there are too many of these for `findings`."""
    missing: tuple[str, ...] = ()
    """Notes about checkpoints and prompts without scores."""
    notes: tuple[str, ...] = ()
    """Units, intervals and tests of the numbers."""
    cautions: tuple[str, ...] = ()
    """Limits of the interpretation."""
    title: str = ""
    description: str = ""
    """The quantity that was measured."""
    family: str = ""
    """Name of the family of metrics, if there is one."""
    heading: str = "Findings"
    """Heading of its section on a page."""
    banks: Sequence[Bank] = ()
    files: Sequence[pl.DataFrame] = ()
    """Names and sizes of the files that were read."""
    screen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns of tables that a terminal shows."""
    run_tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Tables about several models and runs."""
    make_charts: "Callable[[R], dict[str, Chart]]" = field(default=lambda result: {}, compare=False)

    @cached_property
    def charts(self) -> "dict[str, Chart]":
        """Altair charts by name, the most important first; `chart.save("gap.pdf")` writes one."""
        return self.make_charts(self.result)

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name: those of the result, then those about several runs."""
        return {**self.result.tables(), **self.run_tables}

    @property
    def summary(self) -> tuple[str, ...]:
        """Findings, missing scores, notes and cautions as sentences."""
        return (*map(str, self.findings), *self.missing, *self.notes, *self.cautions)

    def as_dict(self) -> dict[str, Any]:
        """Findings, sentences and tables, as `--format json` prints them."""
        return {
            "title": self.title,
            "findings": [finding.as_dict() for finding in self.findings],
            "details": [finding.as_dict() for finding in self.details],
            "missing": list(self.missing),
            "notes": list(self.notes),
            "cautions": list(self.cautions),
            "tables": {name: json_rows(table) for name, table in self.tables.items()},
        }

    def save(
        self,
        out: str | Path,
        *,
        width: str = "single",
        colors: Mapping[str, str] | None = None,
    ) -> Path:
        """Write tables (CSV), charts (PDF, SVG, PNG) and the page into a folder; return the page.

        Parameters
        ----------
        width
            Width of the charts: `single` (3.3 in) or `double` (7 in).
        colors
            Colours by the names in the legends.

        Raises
        ------
        UsageError
            The folder is in a bank, or a width or name is unknown.
        """
        from logitbank.analysis.charts.chart import save_charts
        from logitbank.analysis.report.study import write_study
        from logitbank.analysis.results.files import require_outside, write_tables

        out = Path(out)
        require_outside(out)
        out.mkdir(parents=True, exist_ok=True)
        write_tables(self.tables, out / "tables", "csv")
        page = out / "report.html"
        undrawn = None
        try:
            save_charts(self.charts, out / "charts", width=width, colors=colors)
        except DrawingError as error:
            undrawn = error
        write_study(page, self)
        if undrawn is not None:
            raise undrawn
        return page

    def __repr__(self) -> str:
        first = f": {self.findings[0]}" if self.findings else ""
        return printable(f"<Study of {type(self.result).__name__}{first}>")

    def _repr_html_(self) -> str:
        return html_list(type(self.result).__name__, self.summary)
