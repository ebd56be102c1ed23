"""The charts of StereoSet: measures over training, and of domains and conditions."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    curves,
    dots,
    drawn_checkpoint,
    horizontal,
    stacked,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.stereoset.findings import task_name
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.tables import OVERALL
from logitbank.analysis.frames.candidates import BOTH, INTRA, PLAIN
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.wording import step_name

KEYS = ("language", "condition", "score")
MEASURES = [
    Measure(name, title, (f"{name}_low", f"{name}_high"), "percent")
    for name, title in {"ss": "ss (%)", "lms": "lms (%)", "icat": "iCAT"}.items()
]
SS = MEASURES[0]._replace(band=None)
MEANING = (
    "ss: how often the stereotype is preferred to the anti-stereotype (50: no preference). lms: "
    "how often a related candidate is preferred to the unrelated one. iCAT combines both (ideal: "
    "100)."
)


def charts(result: StereoSet) -> dict[str, Chart]:
    """`training`, `domains` of each task, `domain_training` and `conditions`."""
    found: dict[str, Chart] = {}
    scores = with_series(result.scores, *KEYS).filter(pl.col("examples") > 0)
    if scores.is_empty():
        return found
    tasks = scores["task"].unique(maintain_order=True).to_list()
    main = next(task for task in (BOTH, INTRA, *tasks) if task in tasks)
    tasks.sort(key=lambda task: task != main)
    trained = scores["step"].n_unique() > 1
    if trained:
        found["training"] = _training(scores.filter(domain=OVERALL), main)
    for task in tasks:
        name = "domains" if task == main else f"domains-{task}"
        found[name] = _domains(scores.filter(task=task), task)
    if trained:
        found["domain_training"] = _domain_training(scores.filter(task=main), main)
    differences = with_series(result.differences, "language", "score")
    if len(part := differences.filter(pl.col("examples") > 0, domain=OVERALL)):
        found["conditions"] = _conditions(part)
    return found


def _sample(table: pl.DataFrame) -> str:
    overall = table.filter(domain=OVERALL) if "domain" in table.columns else table
    text = sample_size(overall["examples"], "example")
    terms = sample_size(overall["terms"], "term") if "terms" in table.columns else ""
    return f"{text}, {terms.removeprefix('n = ')}" if terms else text


def _intervals(table: pl.DataFrame, what: str) -> str:
    if not table["ss_low"].is_not_nan().any():
        return ""
    return f" {what}: 95% intervals over terms, if there are {FEWEST_CLUSTERS} or more."


def _training(table: pl.DataFrame, task: str) -> Chart:
    """ss above lms above iCAT; colours are the tasks of one run, or several models and runs."""
    axis = StepAxis(table["step"].to_list())
    group = "task" if table[SERIES].n_unique() == 1 and table["task"].n_unique() > 1 else None
    table = table if group else table.filter(task=task)
    named = table.with_columns(task=pl.col("task").replace({BOTH: "both tasks"}))
    tooltip = {"Terms": "terms", "Examples": "examples"}
    panels = [
        alt.layer(horizontal(50), curves(named, axis, measure, group=group, tooltip=tooltip))
        for measure in MEASURES
    ]
    caption = (
        f"{MEANING} Means over target terms, all domains{'' if group else f', {task_name(task)}'}. "
        f"Dashed: a random model."
        f"{_intervals(table, 'Bands')} {_sample(table)}."
    )
    return titled(stacked(*panels), "StereoSet over training", caption, axis=axis)


def _domain_training(table: pl.DataFrame, task: str) -> Chart:
    """ss by domain: of one run, a line for each; of several, a panel for each."""
    axis = StepAxis(table["step"].to_list())
    tooltip = {"lms": "lms", "iCAT": "icat", "Terms": "terms"}
    if table[SERIES].n_unique() == 1:
        plot = curves(table, axis, SS, group="domain", tooltip=tooltip)
        chart: Chart = alt.layer(horizontal(50), plot)
    else:
        panels = []
        for rows in table.partition_by("domain", maintain_order=True):
            measure = SS._replace(title=f"{rows['domain'][0]}, %")
            plot = curves(rows, axis, measure, tooltip=tooltip)
            panels.append(alt.layer(horizontal(50), plot))
        chart = stacked(*panels)
    caption = (
        f"ss (how often the stereotype is preferred) by domain, {task_name(task)}. Dashed: no "
        f"preference. Means over target terms. {_sample(table)}."
    )
    return titled(chart, "Stereotype score by domain", caption, axis=axis)


def _at_checkpoint(
    table: pl.DataFrame, category: str, measures: Sequence[Measure], reference: float
) -> Chart:
    """Values with their intervals at one checkpoint, a panel for each measure."""
    tooltip = {"Model": SERIES, category.capitalize(): category, "Examples": "examples"}
    tooltip |= {measure.column: measure.column for measure in MEASURES}

    def draw(rows: alt.Chart) -> Chart:
        panels = [
            dots(rows, table, measure, category, tooltip=tooltip, reference=reference)
            for measure in measures
        ]
        chart: Chart = alt.vconcat(*panels, spacing=6).resolve_scale(color="shared")
        return chart

    return at_checkpoint(table, draw)


def _domains(table: pl.DataFrame, task: str) -> Chart:
    chart = _at_checkpoint(table, "domain", MEASURES, 50)
    caption = (
        f"{MEANING} Means over target terms, {task_name(task)}, "
        f"{step_name(drawn_checkpoint(table))}. Dashed: a random model."
        f"{_intervals(table, 'Lines')} {_sample(table)}."
    )
    return titled(chart, f"Domains, {task_name(task)}", caption)


def _conditions(table: pl.DataFrame) -> Chart:
    tasks = table["task"].unique(maintain_order=True).to_list()
    main = next(task for task in (BOTH, INTRA, *tasks) if task in tasks)
    table = table.filter(task=main)
    changes = [each._replace(title=f"Change of {each.title}", scale="zero") for each in MEASURES]
    chart = _at_checkpoint(table, "condition", changes, 0)
    caption = (
        f"Each condition minus {PLAIN}, over the examples that both have, {task_name(main)}, "
        f"{step_name(drawn_checkpoint(table))}. Differences in points."
        f"{_intervals(table, 'Lines')} {_sample(table)}."
    )
    return titled(chart, "Conditions compared with plain", caption)
