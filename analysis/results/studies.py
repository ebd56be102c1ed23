"""The study of a family's result: its findings, several runs, notes and charts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from logitbank.analysis.family import CHANGE_POINTS, Family
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.items import Items, missing_items
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results import measured
from logitbank.analysis.results.crowd import digest, model_tables
from logitbank.analysis.results.differences import difference_findings, model_differences
from logitbank.analysis.results.last_items import last_checkpoints, read_items
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.runs import averaged, not_averaged, run_findings, run_tables
from logitbank.analysis.results.series import CROWD, missing_sentences, with_extreme
from logitbank.analysis.results.tables import Result
from logitbank.analysis.results.templates import template_findings, template_tables
from logitbank.analysis.stats.change_points import KINDS
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
    items = None
    if result is None:
        assert family.items is not None
        items = {scores.prompts: family.items(scores)}
        result = measured.measure(family, scores, items[scores.prompts])
    return make_study(family, result, scores, files=files, items=items)


def make_study(
    family: Family,
    result: R,
    scores: Scores,
    *,
    missing: Sequence[str] | None = None,
    files: Sequence[pl.DataFrame] = (),
    items: Mapping[str, Items] | None = None,
) -> Study[R]:
    """The study of a family's result.

    It names the checkpoints without any of the scores; `missing` are further notes about missing
    scores, by default about the missing items. If a model has several runs, it
    also has their mean and agreement. `items` are those of each prompt set at all checkpoints, if
    the analysis has them.
    """
    named = result.tables()
    tables = [table for table in named.values() if "model" in table.columns]
    if missing is None and "measures" in named:
        if items is not None and len(items) == 1:
            (of_set,) = items.values()
            counts = missing_items(of_set, family.measures)
        else:
            of_first = named["measures"].filter(measure=family.measures[0].key)
            counts = measured.overall(of_first)
        missing = missing_sentences(counts, family.item)
    names = sorted({name for table in tables for name in table["model"].unique()})
    several = _about_several(family, scores, tables, items)
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
    means = [*template_findings(family, several)]
    shown, details = digest(
        [*found[:1], *copied, *run_findings(family, several), *found[1:], *means]
    )
    if (differences := several.get("model_differences")) is not None:
        shown[1:1] = difference_findings(family, differences)
    listed = ", ".join(names) if len(names) < CROWD else f"{len(names)} models"
    return Study(
        result=result,
        findings=tuple(shown),
        details=tuple(details),
        run_tables={**several, **model_tables(family, named)},
        missing=(*(missing or ()), *scores.excluded()),
        notes=(*family.notes, *([CHANGE_POINTS] if _searched(named.values()) else [])),
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


def _searched(tables: Iterable[pl.DataFrame]) -> bool:
    """Whether a table is of change points that were searched for."""
    kinds = (table["kind"].unique() for table in tables if "kind" in table.columns)
    return any(not KINDS.isdisjoint(each) for each in kinds)


def _about_several(
    family: Family,
    scores: Scores,
    tables: Sequence[pl.DataFrame],
    items: Mapping[str, Items] | None,
) -> dict[str, pl.DataFrame]:
    """The tables about several runs, templates and models, at last checkpoints among `tables`.

    Without `items`, those that they need are read once.
    """
    if family.items is None or not family.measures:
        return {}
    last, of_runs = last_checkpoints(tables), averaged(scores, tables)
    last_steps = {*last["step"]} if scores.banks else set()
    compared = last_steps if len(last) >= CROWD else set()
    if items is None:
        items = read_items(family, scores, {
            name: compared | {place.step for place in of_runs.get(name, ())}
            for name in scores.sets
        })  # fmt: skip
    return {
        **run_tables(family, items, of_runs),
        **(template_tables(family, scores, last_steps) if last_steps else {}),
        **(model_differences(family, items, compared) if compared else {}),
    }


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
