"""The findings of lm-evaluation-harness: each task, with the largest change first."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.lm_eval.metric import LmEval
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import Curve, about, by_series, figure_name, size
from logitbank.wording import step_name


def findings(result: LmEval) -> list[Finding]:
    """A headline about the largest change, then the main metric of each task and group."""
    table = result.lm_eval.filter("is_main").drop_nulls("value")
    tasks = by_change(table)
    if not tasks:
        return [Finding(text="No task has a value.")]
    row = table.filter(task=tasks[0]).row(-1, named=True)
    value = formatted(row["value"], ".3f")
    figure = figure_name("lm_eval", tasks[0], len(tasks) > 1)
    text = f"{row['metric']} of {row['task']} is {value} at {step_name(row['step'])}."
    found = [Finding(text=text, **about(row, figure))]
    for task in tasks:
        for prefix, rows in by_series(table.filter(task=task)):
            found += _series(rows, prefix, figure_name("lm_eval", task, len(tasks) > 1))
    return found


def by_change(table: pl.DataFrame) -> list[str]:
    """The tasks, with the largest change since the first checkpoint of any run first.

    Changes of values above 1, such as perplexities, are relative to the first value.
    """
    first = pl.col("value").first().over("model", "run", "task")
    size = (pl.col("value") - first).abs() / pl.max_horizontal(first.abs(), 1)
    last = (
        table.with_columns(size=size).group_by("model", "run", "task", maintain_order=True).last()
    )
    order = last.group_by("task", maintain_order=True).agg(pl.col("size").max())
    tasks: list[str] = order.sort("size", descending=True, nulls_last=True, maintain_order=True)[
        "task"
    ].to_list()
    return tasks


def _series(rows: pl.DataFrame, prefix: str, figure: str) -> Iterator[Finding]:
    row = rows.row(-1, named=True)
    chance = "" if row["chance"] is None else f"{row['chance']:.3f} by chance"
    what = f"{prefix}{row['task']}, {row['metric']}"
    curve = Curve(rows, "value", what, size("documents"), ".3f", figure, chance)
    yield curve.now()
    if rows["common"].count():
        yield from curve.change()
