"""Tables of others, as CSV or Parquet: read whole, and their numbers made numbers."""

from pathlib import Path

import polars as pl

from logitbank.errors import UsageError

SUFFIXES = (".csv", ".parquet")


def is_table_path(path: Path) -> bool:
    """Whether a path is meant as a table: no folder, and its name ends in .csv or .parquet."""
    return path.suffix.lower() in SUFFIXES and not path.is_dir()


def read_table(path: Path) -> pl.DataFrame:
    """A CSV or Parquet file; every column of a CSV file as text, blanks null.

    What a column of CSV holds is known from its format, not from its first rows.

    Raises
    ------
    UsageError
        No such file, or one that is no such table.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is neither .csv nor .parquet; a table is one of the two")
    if not path.is_file():
        raise UsageError(f"there is no table {path}; check the path")
    try:
        if path.suffix.lower() == ".parquet":
            return pl.read_parquet(path, glob=False)
        return pl.read_csv(path, infer_schema=False)
    # Polars panics at some damaged Parquet files.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0] or "it is empty"
        raise UsageError(f"{path} cannot be read as a table: {reason}") from error


def number(column: pl.Series) -> pl.Series:
    """Float64 from numbers or text; blank and NaN are null.

    Raises
    ------
    UsageError
        Text that is no number.

    >>> number(pl.Series("x", ["2e6", " 1.5", "", "nan"])).to_list()
    [2000000.0, 1.5, None, None]
    """
    if column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64).fill_nan(None)
    text = column.cast(pl.String).str.strip_chars()
    values = text.cast(pl.Float64, strict=False).fill_nan(None)
    blank = text.str.to_lowercase().is_in(["", "nan", "null", "none"])
    invalid = text.filter(values.is_null() & text.is_not_null() & ~blank)
    if len(invalid):
        raise UsageError(
            f"the {column.name} {invalid[0]!r} is no number ({len(invalid)} such rows)"
        )
    return values


def whole(column: pl.Series) -> pl.Series:
    """Int64 of numbers that may be written 2000000.0.

    Raises
    ------
    UsageError
        A number that is not whole, or has more than 64 bits.
    """
    if column.dtype.is_integer():
        values, exact = column, column.cast(pl.Int64, strict=False)
    else:
        values = number(column)
        exact = values.cast(pl.Int64, strict=False)
        exact = exact.set(values != values.round(), None)
    invalid = values.filter(exact.is_null() & values.is_not_null())
    if len(invalid):
        raise UsageError(
            f"the {column.name} {invalid[0]} is no whole number ({len(invalid)} such rows)"
        )
    return exact
