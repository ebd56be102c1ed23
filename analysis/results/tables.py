"""The tables of a result: its fields and views of its measures; and as rows for JSON."""

import inspect
import math
from typing import Any, overload

import polars as pl

from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.measure import Measure


class Result:
    """The result of an analysis: a dataclass, whose frames are its tables."""

    __slots__ = ()

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name, in reading order."""
        values = ((name, getattr(self, name)) for name in table_names(type(self)))
        return {name: value for name, value in values if value is not None}


class View:
    """A table under a name that people know: some measures of a result, side by side.

    An attribute of a `Result` class; its value is `side_by_side` of the table `measures`.
    """

    def __init__(self, *measures: Measure, by: str = "") -> None:
        self.measures, self.by = measures, by

    @overload
    def __get__(self, result: None, owner: Any = None) -> "View": ...
    @overload
    def __get__(self, result: Any, owner: Any = None) -> pl.DataFrame: ...
    def __get__(self, result: Any, owner: Any = None) -> "View | pl.DataFrame":
        return self if result is None else side_by_side(result.measures, self.measures, by=self.by)


def table_names(result: type[Result]) -> list[str]:
    """The names of the tables that results of a class have: measures, views, then the others."""
    kinds = inspect.get_annotations(result)
    fields = [name for name, kind in kinds.items() if "DataFrame" in str(kind)]
    views = [name for name, value in vars(result).items() if isinstance(value, View)]
    return [*fields[:1], *views, *fields[1:]] if views else fields


def groups_of(measures: pl.DataFrame) -> list[str]:
    """The columns of groups of a table of measures."""
    return measures.columns[len(CHECKPOINT) : measures.columns.index("measure")]


def side_by_side(table: pl.DataFrame, measures: tuple[Measure, ...], *, by: str) -> pl.DataFrame:
    """Some measures of a table of them: a row per checkpoint and group.

    `by` names the column of the groups of the measures; "" if they have none. One measure has the
    columns of its rows, and its name for `value`. Several have NAME, NAME_low and NAME_high, and
    the items, clusters and missing items of the first.
    """
    names = list(dict.fromkeys(measure.name for measure in measures))
    keyed = pl.DataFrame({
        "measure": [measure.key for measure in measures],
        "name": [measure.name for measure in measures],
        by or "by": [measure.group for measure in measures],
    })  # fmt: skip
    key = [*CHECKPOINT, *groups_of(table), *([by] if by else [])]
    rows = table.join(keyed, on="measure", maintain_order="left")
    if len(names) == 1:
        rest = rows.drop(*key, "measure", "name", "by", strict=False)
        return rows.select(*key, *rest.columns).rename({"value": names[0]})
    first = rows.unique(key, keep="first", maintain_order=True)
    wide = first.select(key)
    for name in names:
        own = rows.filter(name=name).select(
            *key, pl.col("value").alias(name), pl.col("low", "high").name.prefix(f"{name}_")
        )
        wide = wide.join(own, on=key, how="left", nulls_equal=True, maintain_order="left")
    return wide.hstack(first.select("items", "clusters", "missing"))


def json_rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, which has neither NaN, null here, nor infinities, which become text.

    >>> json_rows(pl.DataFrame({"x": [0.5, float("nan"), float("inf"), None]}))
    [{'x': 0.5}, {'x': None}, {'x': 'Infinity'}, {'x': None}]
    """
    rows = [[_json(value) for value in row] for row in table.iter_rows()]
    return [dict(zip(table.columns, row, strict=True)) for row in rows]


def _json(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
