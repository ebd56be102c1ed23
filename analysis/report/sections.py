"""The sections of a page: what an analysis found, or why it found nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from logitbank.analysis.everything import FAILURES, Analysis, failure_message
from logitbank.analysis.finding import Finding
from logitbank.analysis.study import Study

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page: a study, or the reason why there is none."""

    title: str
    id: str = ""
    """Anchor on the page; nothing for a part that the page only mentions."""
    prompts: Sequence[str] = ()
    description: str = ""
    study: Study[Any] | None = None
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
    """The beginning of a page, from the first section that has a finding and a chart."""
    for section in sections:
        charts = section.study.charts if section.study else {}
        if not (charts and section.findings):
            continue
        lead, *others = section.findings
        valued = [finding for finding in others if finding.value is not None]
        series = lead.series or (valued[0].series if valued else ())
        numbers = [finding for finding in valued if finding.series == series]
        chart = lead.figure if lead.figure in charts else next(iter(charts))
        headline = lead.text if lead.value is None else str(lead)
        return First(section, chart, headline, numbers[:FINDINGS])
    return None


def section(analysis: Analysis) -> Section:
    """Run an analysis; what it refuses becomes the section's problem."""
    study, problem = None, ""
    try:
        study = analysis.run()
    except FAILURES as error:
        problem = failure_message(error)
    return Section(
        title=analysis.title, id=analysis.folder, prompts=analysis.prompts,
        description=analysis.family.description, study=study, problem=problem,
    )  # fmt: skip


def cautions(sections: Iterable[Section]) -> list[str]:
    """The limits of a page's numbers, each sentence once."""
    studies = (section.study for section in sections if section.study)
    return list(dict.fromkeys([*GENERAL, *(text for study in studies for text in study.cautions)]))
