"""The tables of a result: its fields and views of its measures; and as rows for JSON."""

import inspect
import math
from typing import Any

import polars as pl

from logitbank.analysis.stats.measure import View


class Result:
    """The result of an analysis: a dataclass, whose frames are its tables."""

    __slots__ = ()

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name, in reading order."""
        values = ((name, getattr(self, name)) for name in table_names(type(self)))
        return {name: value for name, value in values if value is not None}


def table_names(result: type[Result]) -> list[str]:
    """The names of the tables that results of a class have: measures, views, then the others."""
    kinds = inspect.get_annotations(result)
    fields = [name for name, kind in kinds.items() if "DataFrame" in str(kind)]
    views = [name for name, value in vars(result).items() if isinstance(value, View)]
    return [*fields[:1], *views, *fields[1:]] if views else fields


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
