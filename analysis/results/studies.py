"""The study of a family's result: its findings, several runs, notes and charts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from logitbank.analysis.family import CHANGE_POINTS, Family
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.expected import exclusion_notes
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results import measured
from logitbank.analysis.results.crowd import digest, model_tables
from logitbank.analysis.results.differences import difference_finding, model_differences
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.runs import not_averaged, run_findings, run_tables
from logitbank.analysis.results.series import CROWD, missing_sentences, with_extreme
from logitbank.analysis.results.tables import Result
from logitbank.analysis.results.templates import template_findings, template_tables
from logitbank.analysis.study import Study
from logitbank.store.read.copied_weights import CopiedWeights, copied_weights
from logitbank.wording import step_name

if TYPE_CHECKING:
    from logitbank.analysis.charts.chart import Chart

R = TypeVar("R", bound=Result)


def measured_study(
    family: Family,
    scores: Scores,
    *,
    result: Measured | None = None,
    files: Sequence[pl.DataFrame] = (),
) -> Study[Measured]:
    """The study of a family's measures, and of its further tables.

    `result` is by default that of `measure`; `files` are as for `make_study`.

    Raises
    ------
    LogitbankError
        What the family's `items` refuses.
    """
    result = result or measured.measure(family, scores)
    if result.change_points["kind"].count():
        family = replace(family, notes=(*family.notes, CHANGE_POINTS))
    return make_study(family, result, scores, files=files)


def make_study(
    family: Family,
    result: R,
    scores: Scores,
    *,
    missing: Sequence[str] | None = None,
    files: Sequence[pl.DataFrame] = (),
) -> Study[R]:
    """The study of a family's result.

    It names the checkpoints without any of the scores; `missing` are further notes about missing
    scores, by default about the missing items of the first measure. If a model has several runs, it
    also has their mean and agreement.
    """
    named = result.tables()
    tables = [table for table in named.values() if "model" in table.columns]
    if missing is None and "measures" in named:
        of_first = named["measures"].filter(measure=family.measures[0].key)
        missing = missing_sentences(measured.overall(of_first), family.item)
    names = sorted({name for table in tables for name in table["model"].unique()})
    of_runs = run_tables(family, scores, tables)
    of_templates = template_tables(family, scores, tables)
    find = family.findings or partial(measured.findings, family)
    found = find(result)
    found[:1] = [with_extreme(headline, found[1:]) for headline in found[:1]]
    wrong = [
        each
        for bank in scores.banks
        for each in copied_weights(bank.deposits())
        if each.checkpoint.model in names
    ]
    if family.items is not None and family.measures:
        notes = (not_averaged(scores.banks, prompts, names) for prompts in scores.sets)
        missing = [*(missing or ()), *dict.fromkeys(note for each in notes for note in each)]
    lead = found[0].figure if found else ""
    found = [_with_note(finding, wrong) for finding in found]
    copied = [
        Finding(text=str(each), series=(each.checkpoint.model, each.checkpoint.run))
        for each in wrong
    ]
    differences = model_differences(family, scores, tables)
    means = [*template_findings(family, of_templates)]
    shown, details = digest([*found[:1], *copied, *run_findings(of_runs), *found[1:], *means])
    of_runs |= of_templates
    if differences is not None:
        shown.insert(1, difference_finding(family, differences))
        of_runs = {**of_runs, "model_differences": differences}
    of_runs = {**of_runs, **model_tables(family, named)}
    listed = ", ".join(names) if len(names) < CROWD else f"{len(names)} models"
    return Study(
        result=result,
        findings=tuple(shown),
        details=tuple(details),
        run_tables=of_runs,
        missing=(*(missing or ()), *exclusion_notes(scores.banks, scores.sets, scores.models)),
        notes=family.notes,
        cautions=family.cautions,
        title=f"{family.title}: {listed}",
        heading=family.title,
        description=family.description,
        family=family.name,
        screen=family.screen,
        banks=scores.banks,
        files=files,
        make_charts=lambda _: _charts(family, result, lead),
    )


def _charts(family: Family, result: Result, lead: str) -> "dict[str, Chart]":
    """The charts of a result, that of its first finding first."""
    draw = family.charts or partial(measured.charts, family)
    charts = draw(result)
    return dict(sorted(charts.items(), key=lambda item: item[0] != lead))


def _with_note(finding: Finding, wrong: Sequence[CopiedWeights]) -> Finding:
    """The finding; if it names a step that has weights of another one, with a note beside it."""
    notes = []
    for each in wrong:
        own, name = each.checkpoint, step_name(each.checkpoint.step)
        if finding.series not in ((), (own.model, own.run)):
            continue
        if re.search(rf"\b{name}\b(?!,\d)", f"{finding.text} {finding.baseline}"):
            notes.append(f"{name} has weights of {each.source}")
    return replace(finding, note="; ".join(notes)) if notes else finding
