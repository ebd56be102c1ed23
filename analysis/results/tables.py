"""The tables of a result: found among its fields, and as rows for JSON."""

import inspect
import math
from dataclasses import fields
from typing import Any

import polars as pl


class Result:
    """The result of an analysis: a dataclass, whose frames are its tables."""

    __slots__ = ()

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name, in reading order."""
        names = (field.name for field in fields(self))  # type: ignore[arg-type]
        values = ((name, getattr(self, name)) for name in names)
        return {name: value for name, value in values if isinstance(value, pl.DataFrame)}


def table_names(result: type[Result]) -> list[str]:
    """The names of the tables that results of a class have."""
    kinds = inspect.get_annotations(result)
    return [name for name, kind in kinds.items() if "DataFrame" in str(kind)]


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
