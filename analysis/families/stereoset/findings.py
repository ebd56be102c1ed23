"""The findings of StereoSet: the stereotype score first, then lms, iCAT, changes and ties."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.tables import MANY_TIES, OVERALL, TASKS
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.frames.candidates import BOTH, KEYS, PLAIN
from logitbank.analysis.results.series import Curve, about, from_row, size
from logitbank.wording import counted, step_name

SERIES = [name for name in KEYS if name not in ("run_seed", "step")]
FORM = ".1f"
N = size("examples", "terms")


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
    figure = headline_figure(result)
    missing = tasks.select("step", "task", "missing")
    overall = overall.join(missing, on=["step", "task"], nulls_equal=True, maintain_order="left")
    scored = overall["task"].unique(maintain_order=True).to_list()
    for task in sorted(scored, key=lambda task: task != BOTH):
        main = task == BOTH or BOTH not in scored
        yield from _level(name, overall.filter(task=task), figure, main=main)
        if main:
            what = f"{name}Stereotype score ({task_name(task)})"
            n = N(overall.filter(task=task).row(-1, named=True))
            baseline = result.baseline.filter(own, task=task)
            yield from Curve(baseline, "ss", what, n, FORM, figure).change()
            yield from _difference(name, result.differences.filter(own, task=task))
    yield from _ties(name, result.ties.filter(own, domain=OVERALL), figure)


def _skipped(tasks: pl.DataFrame) -> Iterator[Finding]:
    """Tasks without scores, over all series; without one of them there are not both."""
    skipped = tasks.filter(pl.col("task") != BOTH, status="skipped")
    for task in [task for task in TASKS if task in skipped["task"]]:
        count = counted(len(skipped.filter(task=task)), "checkpoint and condition",
                        "checkpoints and conditions")  # fmt: skip
        yield Finding(text=f"{task} has no scores at {count}, so both tasks have none there.")


def _level(name: str, rows: pl.DataFrame, figure: str, *, main: bool) -> Iterator[Finding]:
    """The measures of the last checkpoint; of further tasks, the stereotype score alone."""
    row = rows.row(-1, named=True)
    task = task_name(row["task"])
    if row["examples"] == 0:
        text = f"{name}No example has all three scores at {step_name(row['step'])} ({task})."
        yield Finding(text=text, n=N(row), **about(row, figure))
        return
    measures = [("ss", "Stereotype score", "50 (no preference)")]
    measures += [("icat", "iCAT", "100 (ideal)"), ("lms", "lms", "50 (random)")] * main
    for column, label, baseline in measures:
        yield Curve(rows, column, f"{name}{label} ({task})", N, FORM, figure, baseline).now()
    if main:
        yield from Curve(rows, "icat", f"{name}iCAT ({task})", N, FORM, figure).highest()


def _difference(name: str, rows: pl.DataFrame) -> Iterator[Finding]:
    """A condition against plain, over the examples that both have."""
    rows = rows.filter(domain=OVERALL)
    if rows.is_empty():
        return
    row = rows.row(-1, named=True)
    if row["examples"] == 0:
        yield Finding(text=f"{name}No example has scores in both {row['condition']} and {PLAIN}.")
        return
    for measure, label in (("ss", "Stereotype score"), ("icat", "iCAT")):
        what = f"{name}{label}, {row['condition']} minus {PLAIN}"
        plain = f"{formatted(row[f'{measure}_plain'], FORM)} plain, paired"
        yield Curve(rows, measure, what, size("examples"), "+.2f", "conditions", plain).now()


def _ties(name: str, ties: pl.DataFrame, figure: str) -> Iterator[Finding]:
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
            n=counted(row["ss_comparisons"], "comparison"), **about(row, figure),
        )  # fmt: skip
