"""The charts of StereoSet: measures over training, domains and conditions, and lms against ss."""

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    color,
    curves,
    drawn_checkpoint,
    horizontal,
    path,
    stacked,
    with_series,
)
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.stereoset.findings import figure_of, task_name
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.tables import OVERALL
from logitbank.analysis.frames.candidates import BOTH, INTRA, PLAIN
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.wording import counted, step_name

KEYS = ("language", "condition", "score")
LABELS = {"ss": "ss (%)", "lms": "lms (%)", "icat": "iCAT"}
CHANGES = {"ss": "Change of ss", "lms": "Change of lms", "icat": "Change of iCAT"}
WIDE = 45
"""Characters of labels that fit beside each other."""
MEANING = (
    "ss: how often the stereotype is preferred to the anti-stereotype (50: no preference). lms: "
    "how often a related candidate is preferred to the unrelated one. iCAT combines both (ideal: "
    "100)."
)


def charts(result: StereoSet) -> dict[str, Chart]:
    """`training`, `domains` of each task, `domain_training`, `lms_ss` and `conditions`."""
    found: dict[str, Chart] = {}
    scores = with_series(result.scores, *KEYS).filter(pl.col("examples") > 0)
    if scores.is_empty():
        return found
    tasks = scores["task"].unique(maintain_order=True).to_list()
    main = next(task for task in (BOTH, INTRA, *tasks) if task in tasks)
    tasks.sort(key=lambda task: task != main)
    for task in tasks:
        name = "domains" if task == main else f"domains-{task}"
        found[name] = _domains(scores.filter(task=task), task)
    overall = scores.filter(domain=OVERALL)
    if scores["step"].n_unique() > 1:
        found["training"] = _training(overall, main)
        found["domain_training"] = _domain_training(scores.filter(task=main), main)
        baseline = with_series(result.baseline, *KEYS).filter(pl.col("common") > 0)
        if len(baseline.filter(task=main)):
            found["change"] = _change(baseline.filter(task=main), main)
        found["lms_ss"] = _lms_ss(overall.filter(task=main), result.references, main)
    differences = with_series(result.differences, "language", "score")
    if len(part := differences.filter(pl.col("examples") > 0, domain=OVERALL)):
        found["conditions"] = _conditions(part)
    first = figure_of(result)
    return {first: found[first], **found}


def _sample(table: pl.DataFrame) -> str:
    overall = table.filter(domain=OVERALL) if "domain" in table.columns else table
    examples = counted(int(overall["examples"].max() or 0), "example")  # type: ignore[arg-type]
    if "terms" not in table.columns:
        return f"n = {examples}"
    return f"n = {examples}, {counted(int(overall['terms'].max() or 0), 'term')}"  # type: ignore[arg-type]


def _intervals(table: pl.DataFrame, what: str, column: str = "ss_low") -> str:
    if not table[column].is_not_nan().any():
        return ""
    return f" {what}: 95% bootstrap intervals over terms, if there are {FEWEST_CLUSTERS} or more."


def _training(table: pl.DataFrame, task: str) -> Chart:
    """ss above lms above iCAT; colours are the tasks of one run, or several models and runs."""
    axis = StepAxis(table["step"].to_list())
    group = "task" if table[SERIES].n_unique() == 1 and table["task"].n_unique() > 1 else None
    table = table if group else table.filter(task=task)
    named = table.with_columns(task=pl.col("task").replace({BOTH: "both tasks"}))
    panels = [
        alt.layer(
            horizontal(50),
            curves(
                named, axis, y=measure, title=LABELS[measure], group=group,
                band=(f"{measure}_low", f"{measure}_high"), height=95, legend=measure == "ss",
                tooltip={"Terms": "terms", "Examples": "examples"},
                x_title="Training step" if measure == "icat" else None, x_labels=measure == "icat",
            ),
        )
        for measure in LABELS
    ]  # fmt: skip
    caption = (
        f"{MEANING} Means over target terms, all domains{'' if group else f', {task_name(task)}'}. "
        f"Dashed: a random model."
        f"{_intervals(table, 'Bands')} {_sample(table)}."
    )
    return titled(stacked(*panels), "StereoSet over training", caption, axis=axis)


def _domain_training(table: pl.DataFrame, task: str) -> Chart:
    """ss by domain: of one run, a line for each; of several, a panel for each."""
    axis = StepAxis(table["step"].to_list())
    domains = table["domain"].unique(maintain_order=True).to_list()
    one = table[SERIES].n_unique() == 1
    tooltip = {"lms": "lms", "iCAT": "icat", "Terms": "terms"}
    panels = [
        alt.layer(
            horizontal(50),
            curves(
                table if one else table.filter(domain=domain), axis, y="ss",
                title=LABELS["ss"] if one else f"{domain}, %", group="domain" if one else None,
                band=None, tooltip=tooltip, height=160 if one else 60,
                legend=domain == domains[0], x_labels=one or domain == domains[-1],
                x_title="Training step" if one or domain == domains[-1] else None,
            ),
        )
        for domain in (domains[:1] if one else domains)
    ]  # fmt: skip
    caption = (
        f"ss (how often the stereotype is preferred) by domain, {task_name(task)}. Dashed: no "
        f"preference. Means over target terms. {_sample(table)}."
    )
    chart = panels[0] if one else stacked(*panels)
    return titled(chart, "Stereotype score by domain", caption, axis=axis)


def _change(table: pl.DataFrame, task: str) -> Chart:
    axis = StepAxis(table["step"].to_list())
    chart = curves(
        table, axis, y="from_baseline", title="Change of ss (points)",
        band=("from_baseline_low", "from_baseline_high"), tooltip={"Common terms": "common"},
    )  # fmt: skip
    terms = counted(int(table["common"].max() or 0), "term")  # type: ignore[arg-type]
    caption = (
        f"Stereotype score minus that of the first checkpoint of the same run, paired over terms, "
        f"{task_name(task)}.{_intervals(table, 'Bands', 'from_baseline_low')} n = {terms}."
    )
    title = "Stereotype score, change since the first checkpoint"
    return titled(alt.layer(horizontal(0), chart), title, caption, axis=axis)


def _intervals_at(
    table: pl.DataFrame,
    across: str,
    order: Sequence[str],
    labels: Mapping[str, str],
    *,
    zero: float,
) -> Chart:
    """Values with their intervals at one checkpoint, a panel for each measure."""
    names = table[SERIES].unique(maintain_order=True).to_list()

    angle = 0 if sum(map(len, order)) < WIDE else -30

    def draw(base: alt.Chart) -> Chart:
        panels = []
        for measure, label in labels.items():
            last = measure == list(labels)[-1]
            axis = alt.Axis(labels=last, ticks=last, title=None, labelAngle=angle, labelLimit=120)
            ends = {f"{measure}_low": f"{label}, low", f"{measure}_high": f"{label}, high"}
            numbers = {measure: label} | ends
            names_of = {"checkpoint": "Checkpoint", SERIES: "Model", across: across.capitalize()}
            y = alt.Y(f"{measure}:Q", title=label, scale=alt.Scale(zero=False))
            encoded = base.encode(
                x=alt.X(f"{across}:N", sort=list(order), axis=axis),
                color=color(SERIES, names, legend=label == next(iter(labels.values()))),
                xOffset=alt.XOffset(f"{SERIES}:N", sort=names),
            )
            rules = encoded.mark_rule(strokeWidth=1.5).encode(
                y=alt.Y(f"{measure}_low:Q", title=label), y2=f"{measure}_high:Q"
            )
            points = encoded.mark_point(filled=True, size=30, opacity=1).encode(
                y=y,
                tooltip=[
                    *(alt.Tooltip(f"{name}:N", title=text) for name, text in names_of.items()),
                    *(alt.Tooltip(f"{n}:Q", title=x, format=".1f") for n, x in numbers.items()),
                    alt.Tooltip("examples:Q", title="Examples"),
                ],
            )
            panels.append(alt.layer(horizontal(zero), rules, points).properties(height=90))
        rows: Chart = alt.vconcat(*panels, spacing=4).resolve_scale(x="shared", color="shared")
        return rows

    return at_checkpoint(table, draw)


def _domains(table: pl.DataFrame, task: str) -> Chart:
    domains = table["domain"].unique(maintain_order=True).to_list()
    order = [*(domain for domain in domains if domain != OVERALL), OVERALL]
    chart = _intervals_at(table, "domain", order, LABELS, zero=50)
    caption = (
        f"{MEANING} Means over target terms, {task_name(task)}, "
        f"{step_name(drawn_checkpoint(table))}. Dashed: a random model."
        f"{_intervals(table, 'Lines')} {_sample(table)}."
    )
    return titled(chart, f"Domains, {task_name(task)}", caption)


def _conditions(table: pl.DataFrame) -> Chart:
    order = table["condition"].unique(maintain_order=True).to_list()
    tasks = table["task"].unique(maintain_order=True).to_list()
    main = next(task for task in (BOTH, INTRA, *tasks) if task in tasks)
    table = table.filter(task=main)
    chart = _intervals_at(table, "condition", order, CHANGES, zero=0)
    caption = (
        f"Each condition minus {PLAIN}, over the examples that both have, {task_name(main)}, "
        f"{step_name(drawn_checkpoint(table))}. Differences in points."
        f"{_intervals(table, 'Lines')} {_sample(table)}."
    )
    return titled(chart, "Conditions compared with plain", caption)


def _lms_ss(table: pl.DataFrame, references: pl.DataFrame, task: str) -> Chart:
    titles = ("ss (%)", "lms (%)")
    way = path(table, x="ss", y="lms", titles=titles, tooltip={"iCAT": "icat"})
    known = references.filter(pl.col("lms").is_not_nan())
    marks = alt.Chart(known).encode(x="ss:Q", y="lms:Q")
    caption = (
        f"lms against ss, joined in the order of training, {task_name(task)}; later checkpoints "
        "are darker. Crosses: the ideal model (ss 50, lms 100) and a random one (ss 50, lms 50). "
        f"{_sample(table)}."
    )
    layers = [
        marks.mark_point(shape="cross", filled=True, size=60, color="black"),
        marks.mark_text(dx=6, align="left").encode(text="reference:N"),
        way,
    ]
    return titled(alt.layer(*layers), "lms against ss", caption)
