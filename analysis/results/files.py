"""Tables of results as files."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import polars as pl
import polars.selectors as cs

from logitbank.analysis.frames.expressions import check_choice
from logitbank.analysis.results.csv_text import without_formulas
from logitbank.analysis.results.latex import latex
from logitbank.analysis.results.tables import Result, json_rows
from logitbank.errors import UsageError
from logitbank.store.share.urls import shown_url
from logitbank.whole_files import whole_file

Format = Literal["csv", "parquet", "json", "jsonl", "latex"]
_SUFFIXES = {"latex": "tex"}


def write_tables(
    result: Result | Mapping[str, pl.DataFrame], folder: Path | str, format: Format = "csv"
) -> list[Path]:
    """Write every table, one file each as of `table_bytes`, and return the paths.

    Raises
    ------
    UsageError
        Another format.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    tables = result.tables() if isinstance(result, Result) else result
    for name, table in tables.items():
        paths.append(folder / f"{name}.{_SUFFIXES.get(format, format)}")
        replace_file(paths[-1], table_bytes(table, format))
    return paths


def table_bytes(table: pl.DataFrame, format: Format) -> bytes:
    """A table as a file: at full precision, but LaTeX, which is for people to read.

    CSV has an empty cell for NaN and null, and text that would be a formula as
    `without_formulas` gives it. JSON is a list of records, and JSONL one record a line: in both NaN
    is null, and infinities are the texts Infinity and -Infinity. LaTeX is the output of `latex`.

    Raises
    ------
    UsageError
        Another format.
    """
    check_choice("format", format, get_args(Format))
    buffer = io.BytesIO()
    if format == "csv":
        without_nan = table.lazy().with_columns(cs.float().fill_nan(None))
        without_formulas(without_nan).collect().write_csv(buffer)
    elif format == "parquet":
        table.write_parquet(buffer)
    elif format == "latex":
        buffer.write(latex(table).encode())
    elif format == "jsonl":
        for row in json_rows(table):
            buffer.write(json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n")
    else:
        rows = json_rows(table)
        buffer.write(json.dumps(rows, ensure_ascii=False, indent=1, default=str).encode())
    return buffer.getvalue()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as part:
        part.write_bytes(content)


def require_outside(path: str | Path) -> None:
    """Refuse to write a result to a URL, or into a bank or any other Zarr store.

    Raises
    ------
    UsageError
        `path` is a URL, or is a store or lies in one: what a bank does not know of is damage to it.
    """
    if url := shown_url(path):
        raise UsageError(f"Results are written to a folder, not to {url}. Name one with --out.")
    whole = Path(path).resolve()
    for folder in (whole, *whole.parents):
        if (folder / "zarr.json").is_file():
            raise UsageError(
                f"{path} is in {folder}, which holds data that results must not be mixed with;"
                " choose another place with --out"
            )
