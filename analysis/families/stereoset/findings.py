"""The findings of StereoSet: its measures, conditions compared with plain, ties, skipped tasks."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereoset import FAMILY
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.tables import MANY_TIES, TASKS
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.frames.candidates import BOTH, PLAIN
from logitbank.analysis.results import measured
from logitbank.analysis.results.series import Curve, Row, about, series_name, size
from logitbank.analysis.stats.summary import ALL
from logitbank.wording import counted, step_name

SERIES = ("model", "run", "language", "condition", "score", "task")


def findings(result: StereoSet) -> list[Finding]:
    """The measures and their changes, then what is particular to StereoSet."""
    found = measured.findings(FAMILY, result.headline)
    return [*found, *_conditions(result), *_ties(result), *_skipped(result.tasks)]


def _conditions(result: StereoSet) -> Iterator[Finding]:
    """A condition against plain, over the examples that both have."""
    is_both = pl.col("task") == BOTH
    table = result.differences.filter(is_both | ~is_both.any().over(SERIES[:-1]), domain=ALL)
    for rows in table.partition_by(*SERIES, maintain_order=True):
        row = rows.row(-1, named=True)
        what = f"{row['condition']} minus {PLAIN}"
        prefix = _prefix(row, table)
        if row["examples"] == 0:
            yield Finding(text=f"{prefix}No example has scores of both, {what}.", **about(row))
            continue
        for measure in (FAMILY.measures[0], FAMILY.measures[2]):
            own = rows.filter(measure=measure.key)
            plain = f"{formatted(own['plain'][-1], measure.form)} plain, paired"
            name, form = f"{prefix}{measure.text}, {what}", f"+{measure.form}"
            yield Curve(own, "difference", name, size("examples"), form, "", plain).now()


def _ties(result: StereoSet) -> Iterator[Finding]:
    """The checkpoint of each task with the most ties, where they are many."""
    share = pl.max_horizontal("ss_tie_rate", "lms_tie_rate")
    table = result.ties.filter(share.fill_nan(0) > MANY_TIES, domain=ALL)
    for rows in table.partition_by(*SERIES, maintain_order=True):
        row = rows.sort(share, maintain_order=True).row(-1, named=True)
        untied = formatted(float("nan") if row["ss_untied"] is None else row["ss_untied"], ".1f")
        yield Finding(
            text=(
                f"{_prefix(row, result.ties)}Stereotype–anti-stereotype ties "
                f"({task_name(row['task'])}) at {step_name(row['step'])} (they count as "
                f"anti-stereotype; score without them {untied})"
            ),
            value=row["ss_tie_rate"], form=".1%",
            n=counted(row["ss_comparisons"], "comparison"), **about(row),
        )  # fmt: skip


def _skipped(tasks: pl.DataFrame) -> Iterator[Finding]:
    """Tasks without scores, over all series; without one of them there are not both."""
    skipped = tasks.filter(pl.col("task") != BOTH, status="skipped")
    for task in [task for task in TASKS if task in skipped["task"]]:
        count = counted(len(skipped.filter(task=task)), "checkpoint and condition",
                        "checkpoints and conditions")  # fmt: skip
        yield Finding(text=f"{task} has no scores at {count}, so both tasks have none there.")


def _prefix(row: Row, table: pl.DataFrame) -> str:
    """The model, run, language and rule of a row, if several are in a table."""
    several = table.select("model", "run").n_unique() > 1
    names = [series_name(row)] if several else []
    names += [row[name] for name in ("language", "score") if table[name].n_unique() > 1]
    return f"{', '.join(names)}: " if names else ""


def task_name(task: str) -> str:
    """A task as readers name it."""
    return "both tasks" if task == BOTH else task.replace("_", " ")
