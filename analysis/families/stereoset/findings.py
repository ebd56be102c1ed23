"""The findings of StereoSet: the stereotype score first, then lms, iCAT, changes and ties."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.tables import MANY_TIES, OVERALL, TASKS
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.frames.candidates import BOTH, KEYS, PLAIN
from logitbank.analysis.results.series import Row, change_from_first, from_row, missing_text
from logitbank.wording import counted, step_name

SERIES = [name for name in KEYS if name not in ("run_seed", "step")]
FORM = ".1f"


def findings(result: StereoSet) -> list[Finding]:
    """A headline, then each model, run, language, condition and rule."""
    found = [each for rows in result.tasks.partition_by(SERIES, maintain_order=True)
             for each in _series(result, rows)]  # fmt: skip
    return [*_headline(result), *found, *_skipped(result.tasks)]


def _headline_rows(result: StereoSet) -> pl.DataFrame:
    """`scores` of one series and task, over all domains: without a prefix and of both tasks."""
    table = result.scores.filter(pl.col("ss").is_not_nan(), domain=OVERALL)
    for column, usual in (("condition", PLAIN), ("score", "reference"), ("task", BOTH)):
        if len(chosen := table.filter(pl.col(column) == usual)):
            table = chosen
    for column in (*SERIES, "task"):
        table = table.filter(pl.col(column) == pl.first(column))
    return table


def task_name(task: str) -> str:
    """A task as readers name it."""
    return "both tasks" if task == BOTH else task.replace("_", " ")


def _headline(result: StereoSet) -> Iterator[Finding]:
    rows = _headline_rows(result)
    if rows.is_empty():
        yield Finding(text="No example has all three scores.")
        return
    row = rows.row(-1, named=True)
    several = result.scores.select("model", "run").n_unique() > 1
    who = f"{row['model']}: stereotype" if several else "Stereotype"
    text = (
        f"{who} score {formatted(row['ss'], FORM)} at {step_name(row['step'])} "
        f"(50 = no preference), mean over {counted(row['terms'], 'term')}."
    )
    yield replace(
        from_row(row, "ss", text, n=counted(row["examples"], "example"), form=FORM),
        value=None, figure=headline_figure(result),
    )  # fmt: skip


def headline_figure(result: StereoSet) -> str:
    """The chart that shows the headline."""
    return "training" if result.scores["step"].n_unique() > 1 else "domains"


def _series(result: StereoSet, tasks: pl.DataFrame) -> Iterator[Finding]:
    head = tasks.row(0, named=True)
    own = pl.all_horizontal(pl.col(name) == head[name] for name in SERIES)
    overall = result.scores.filter(own, domain=OVERALL)
    differing = [name for name in SERIES if result.tasks[name].n_unique() > 1]
    name = f"{' '.join(str(head[key]) for key in differing)}: " if differing else ""
    about: dict[str, Any] = {
        "figure": headline_figure(result),
        "series": (head["model"], head["run"]),
    }
    scored = overall["task"].unique(maintain_order=True).to_list()
    for task in sorted(scored, key=lambda task: task != BOTH):
        rows = overall.filter(task=task)
        n = _n(rows.row(-1, named=True), tasks)
        main = task == BOTH or BOTH not in scored
        yield from _level(name, rows, n, about, main=main)
        if main:
            what = f"{name}Stereotype score ({task_name(task)})"
            baseline = result.baseline.filter(own, task=task)
            yield from change_from_first(baseline, what, form="+.1f", n=n, **about)
            yield from _difference(name, result.differences.filter(own, task=task), about)
    yield from _ties(name, result.ties.filter(own, domain=OVERALL), about)


def _skipped(tasks: pl.DataFrame) -> Iterator[Finding]:
    """Tasks without scores, over all series; without one of them there are not both."""
    skipped = tasks.filter(pl.col("task") != BOTH, status="skipped")
    for task in [task for task in TASKS if task in skipped["task"]]:
        count = counted(len(skipped.filter(task=task)), "checkpoint and condition",
                        "checkpoints and conditions")  # fmt: skip
        yield Finding(text=f"{task} has no scores at {count}, so both tasks have none there.")


def _n(row: Row, tasks: pl.DataFrame) -> str:
    """Examples and terms of a checkpoint and task, and what is missing."""
    own = tasks.filter(pl.col("step").eq_missing(pl.lit(row["step"])), task=row["task"])
    text = f"{counted(row['examples'], 'example')} ({counted(row['terms'], 'term')})"
    return text + missing_text(int(own["missing"].sum()))


def _level(
    name: str, rows: pl.DataFrame, n: str, about: dict[str, Any], *, main: bool
) -> Iterator[Finding]:
    """The measures of the last checkpoint; of further tasks, the stereotype score alone."""
    row = rows.row(-1, named=True)
    task, when = task_name(row["task"]), step_name(row["step"])
    if row["examples"] == 0:
        text = f"{name}No example has all three scores at {when} ({task})."
        yield Finding(text=text, n=n, **about)
        return
    measures = {"ss": ("Stereotype score", "50 (no preference)")}
    if main:
        measures |= {"icat": ("iCAT", "100 (ideal)"), "lms": ("lms", "50 (random)")}
    for measure, (label, baseline) in measures.items():
        text = f"{name}{label} ({task}) at {when}"
        yield from_row(row, measure, text, form=FORM, n=n, baseline=baseline, **about)
    known = rows.filter(pl.col("icat").is_not_nan())
    best = known.row(int(known["icat"].arg_max() or 0), named=True)
    if main and best["icat"] > row["icat"]:
        text = f"{name}Highest iCAT ({task}), at {step_name(best['step'])}"
        yield from_row(best, "icat", text, form=FORM, n=n, **about)


def _difference(name: str, rows: pl.DataFrame, about: dict[str, Any]) -> Iterator[Finding]:
    """A condition against plain, over the examples that both have."""
    rows = rows.filter(domain=OVERALL)
    if rows.is_empty():
        return
    row = rows.row(-1, named=True)
    if row["examples"] == 0:
        yield Finding(text=f"{name}No example has scores in both {row['condition']} and {PLAIN}.")
        return
    when, n = step_name(row["step"]), counted(row["examples"], "example")
    for measure, label in (("ss", "Stereotype score"), ("icat", "iCAT")):
        text = f"{name}{label}, {row['condition']} minus {PLAIN} at {when}"
        baseline = f"{formatted(row[f'{measure}_plain'], FORM)} plain, paired"
        own = {**about, "figure": "conditions"}
        yield from_row(row, measure, text, form="+.2f", n=n, baseline=baseline, **own)


def _ties(name: str, ties: pl.DataFrame, about: dict[str, Any]) -> Iterator[Finding]:
    """The checkpoint of each task with the most ties, where they are many."""
    share = pl.max_horizontal("ss_tie_rate", "lms_tie_rate")
    for rows in ties.filter(share > MANY_TIES).partition_by("task", maintain_order=True):
        row = rows.sort(share).row(-1, named=True)
        untied = formatted(float("nan") if row["ss_untied"] is None else row["ss_untied"], FORM)
        yield Finding(
            text=(
                f"{name}Stereotype–anti-stereotype ties ({task_name(row['task'])}) at "
                f"{step_name(row['step'])} (they count as anti-stereotype; score without them "
                f"{untied})"
            ),
            value=row["ss_tie_rate"], form=".1%",
            n=counted(row["ss_comparisons"], "comparison"), **about,
        )  # fmt: skip
