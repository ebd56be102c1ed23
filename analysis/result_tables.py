"""The tables of a result, found among its fields."""

from dataclasses import fields
from typing import Any

import polars as pl


def tables_of(result: Any) -> dict[str, pl.DataFrame]:
    """The frames of a dataclass by the names of their fields, in their order."""
    values = ((field.name, getattr(result, field.name)) for field in fields(result))
    return {name: value for name, value in values if isinstance(value, pl.DataFrame)}
