"""Files of other tools: JSON objects, and tables as CSV or Parquet."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.errors import UsageError

SUFFIXES = (".csv", ".parquet")


def read_json_object(path: Path, kind: str) -> Mapping[str, Any]:
    """The object in a JSON file, which may contain NaN and Infinity, as Python writes them.

    Raises
    ------
    UsageError
        The file does not exist or does not contain a JSON object.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"Cannot read {kind} {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors are ValueErrors
        raise UsageError(f"{path} is not valid JSON: {error}. Use a {kind}.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} contains no JSON object. Use a {kind}.")
    return content


def named_file(text: str) -> tuple[str, Path]:
    """The name and the path of `NAME=PATH`; without a name "".

    >>> named_file("bert=out/p.json")[0], named_file("out/p.json")[0]
    ('bert', '')
    """
    name, equals, rest = text.partition("=")
    if equals and name and rest and not Path(text).exists():
        return name, Path(rest)
    return "", Path(text)


def is_table_path(path: Path) -> bool:
    """Whether a path means a table: no folder, and its name ends in .csv or .parquet."""
    return path.suffix.lower() in SUFFIXES and not path.is_dir()


def read_table(path: Path) -> pl.DataFrame:
    """A CSV or Parquet file; every column of a CSV file is text, and blanks are null.

    The type of a CSV column is known from its format, not from its first rows.

    Raises
    ------
    UsageError
        No such file, or no such table.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is not a table. Use a .csv or .parquet file.")
    if not path.is_file():
        raise UsageError(f"Table {path} does not exist.")
    try:
        if path.suffix.lower() == ".parquet":
            return pl.read_parquet(path, glob=False)
        return pl.read_csv(path, infer_schema=False)
    # Polars panics at some damaged Parquet files.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0] or "it is empty"
        raise UsageError(f"Cannot read {path} as a table: {reason}.") from error


def parse_numbers(column: pl.Series) -> pl.Series:
    """Float64 from numbers or text; blank and NaN are null.

    Raises
    ------
    UsageError
        Text that is not a number.

    >>> parse_numbers(pl.Series("x", ["2e6", " 1.5", "", "nan"])).to_list()
    [2000000.0, 1.5, None, None]
    """
    if column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64).fill_nan(None)
    text = column.cast(pl.String).str.strip_chars()
    values = text.cast(pl.Float64, strict=False).fill_nan(None)
    blank = text.str.to_lowercase().is_in(["", "nan", "null", "none"])
    _refuse(column.name, "a number", text.filter(values.is_null() & text.is_not_null() & ~blank))
    return values


def parse_integers(column: pl.Series) -> pl.Series:
    """Int64 from numbers that may be written 2000000.0.

    Raises
    ------
    UsageError
        A number that is not an integer, or has more than 64 bits.
    """
    if column.dtype.is_integer():
        values, exact = column, column.cast(pl.Int64, strict=False)
    else:
        values = parse_numbers(column)
        exact = values.cast(pl.Int64, strict=False)
        exact = exact.set(values != values.round(), None)
    _refuse(column.name, "an integer", values.filter(exact.is_null() & values.is_not_null()))
    return exact


def _refuse(name: str, kind: str, invalid: pl.Series) -> None:
    if len(invalid):
        raise UsageError(
            f"Column {name!r} has the value {invalid[0]!r}, which is not {kind} "
            f"({len(invalid)} such rows)."
        )
