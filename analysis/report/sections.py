"""The sections of a page: what an analysis found, or why it found nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from logitbank.analysis.charts.chart import Chart
from logitbank.analysis.finding import Finding
from logitbank.store import Bank

FINDINGS = 4
"""Findings of a section that are seen at once, and key numbers beside the first chart."""
GENERAL = (
    "The page is about the models and prompts that it names. Other prompts, wordings, languages "
    "and models may give other results. A number about text does not measure harm in use.",
    "Intervals and tests are for one checkpoint at a time. Among many checkpoints, some differ by "
    "chance. Neighbouring checkpoints share most of their weights, so their agreement is not "
    "independent evidence.",
    "A score near zero does not show the absence of bias: a model may give almost no probability "
    "to any of the options. Look at ranks and probabilities, too.",
)
"""The limits of every number of a page."""


class Shown(Protocol):
    """The parts of a study that a page shows."""

    @property
    def title(self) -> str: ...
    @property
    def heading(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def details(self) -> tuple[Finding, ...]: ...
    @property
    def missing(self) -> tuple[str, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def cautions(self) -> tuple[str, ...]: ...
    @property
    def tables(self) -> Mapping[str, pl.DataFrame]: ...
    @property
    def charts(self) -> Mapping[str, Chart]: ...
    @property
    def banks(self) -> Sequence[Bank]: ...
    @property
    def files(self) -> Sequence[pl.DataFrame]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page: a study, or the reason why there is none."""

    title: str
    id: str = ""
    """Anchor on the page; nothing for a part that the page only mentions."""
    prompts: Sequence[str] = ()
    description: str = ""
    study: Shown | None = None
    problem: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.study.findings if self.study else ()


@dataclass(frozen=True, slots=True)
class First:
    """The beginning of a page: the first finding of a section, a chart and key numbers."""

    section: Section
    chart: str
    headline: str
    numbers: Sequence[Finding]


def page_opening(sections: Iterable[Section]) -> First | None:
    """The beginning of a page, from the first section that has a finding and a chart.

    Its numbers are those of the model and run, or of the several runs, of the finding.
    """
    for section in sections:
        charts = section.study.charts if section.study else {}
        if not (charts and section.findings):
            continue
        lead, *others = section.findings
        valued = [finding for finding in others if finding.value is not None]
        runs = {finding.series for finding in valued if finding.series}
        # A finding about several runs stands beside numbers of several runs.
        series = lead.series or (runs.pop() if len(runs) == 1 else ())
        numbers = [finding for finding in valued if finding.series == series]
        chart = lead.figure if lead.figure in charts else next(iter(charts))
        headline = lead.text if lead.value is None else str(lead)
        return First(section, chart, headline, numbers[:FINDINGS])
    return None


def cautions(sections: Iterable[Section]) -> list[str]:
    """The limits of a page's numbers, each sentence once."""
    studies = (section.study for section in sections if section.study)
    return list(dict.fromkeys([*GENERAL, *(text for study in studies for text in study.cautions)]))
