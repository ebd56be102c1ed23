"""Tables of results as files."""

import io
import json
import os
from pathlib import Path
from typing import Literal, Protocol, get_args

import polars as pl

from logitbank.analysis.frames.expressions import check_choice
from logitbank.analysis.results.csv_text import without_formulas
from logitbank.analysis.results.tables import json_rows

Format = Literal["csv", "parquet", "json"]


class Result(Protocol):
    """What a family of metrics found."""

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by name, in reading order."""


def write_tables(result: Result, folder: Path | str, format: Format = "csv") -> list[Path]:
    """Write every table at full precision, one file each, and return the paths.

    CSV writes NaN as `NaN`, null as nothing, and text that would be a formula as
    `without_formulas` gives it; JSON is a list of records in which both are null,
    and infinities are the texts Infinity and -Infinity.

    Raises
    ------
    UsageError
        Another format.
    """
    check_choice("format", format, get_args(Format))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in result.tables().items():
        path = folder / f"{name}.{format}"
        buffer = io.BytesIO()
        if format == "csv":
            without_formulas(table.lazy()).collect().write_csv(buffer)
        elif format == "parquet":
            table.write_parquet(buffer)
        else:
            buffer.write(json.dumps(json_rows(table), ensure_ascii=False, indent=1).encode())
        replace_file(path, buffer.getvalue())
        paths.append(path)
    return paths


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the file, then move into place, so that no half of it is ever seen."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
