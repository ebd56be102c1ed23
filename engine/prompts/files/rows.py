"""The rows of a prompt file, whatever its kind: values by field, and where they stand.

It knows files and no prompt; of fields only which are never numbers.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.engine.prompts.files.fields import ABOUT, TEXTS, json_value
from logitbank.engine.prompts.values import Scalar
from logitbank.errors import PromptError, UsageError
from logitbank.store.format.limits import in_int64, shown

_TRUTH = {"true": True, "True": True, "false": False, "False": False}
_EXACT = 2**53
"""Whole numbers up to here are the same number as a float."""


class Row(NamedTuple):
    """One row of a prompt file."""

    place: str
    """`file:line`, for messages."""
    values: Mapping[str, Any]


Read = Row | PromptError
"""A row, or why it cannot be one; the next is read all the same."""


def rows_of(path: Path) -> Iterator[Read]:
    """The rows of a `.jsonl`, `.csv` or `.parquet` file.

    Raises
    ------
    UsageError
        The file is not there, or its ending is none of the three.
    PromptError
        The file as a whole cannot be read.
    """
    readers = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
    if path.suffix.lower() not in readers:
        raise UsageError(
            f"prompt file {path} ends in {path.suffix!r}; allowed are {', '.join(readers)}"
        )
    if not path.is_file():
        raise UsageError(f"prompt file {path} is not there; check the path")
    try:
        yield from readers[path.suffix.lower()](path)
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is not UTF-8 text ({error.reason}); convert it") from error


def _jsonl(path: Path) -> Iterator[Read]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _json_row(line, f"{path}:{number}")


def _json_row(line: str, place: str) -> Read:
    try:
        values = json_value(line.rstrip("\n"), "line")
    except PromptError as error:
        return PromptError(f"{place}: {error}")
    if not isinstance(values, dict):
        return PromptError(
            f"{place}: {shown(values)} is no prompt; write a JSON object with a text"
        )
    if missing := _nothing_to_ask(values):
        return PromptError(f"{place}: no {missing}")
    return Row(place, values)


def _nothing_to_ask(names: Iterable[str]) -> str:
    """What a message says where no field is there that a prompt is about; else nothing."""
    if not set(ABOUT).isdisjoint(names):
        return ""
    close = (near for name in names for near in get_close_matches(name, ABOUT, n=1, cutoff=0.7))
    near = next(close, None)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"'text'; found {', '.join(map(repr, names)) or 'nothing'}{hint}"


def _csv(path: Path) -> Iterator[Read]:
    csv.field_size_limit(2**31 - 1)  # Python's 131,072 characters stop a few-shot prompt
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        places, cells = [], []
        try:
            header = next(reader, [])
            start = reader.line_num + 1
            for row in reader:
                if row:
                    places.append(f"{path}:{start}")
                    cells.append(row)
                start = reader.line_num + 1
        except csv.Error as error:
            raise PromptError(f"{path}:{reader.line_num}: broken CSV ({error})") from None
    _check_header(path, header)
    whole = [row for row in cells if len(row) == len(header)]
    columns = {
        name: _typed(list(column), name)
        for name, column in zip(header, zip(*whole, strict=True), strict=False)
    }
    typed = iter(zip(*columns.values(), strict=True))
    for place, row in zip(places, cells, strict=True):
        if len(row) == len(header):
            yield Row(place, dict(zip(header, next(typed), strict=True)))
        else:
            yield PromptError(f"{place}: {len(row)} cells, the header has {len(header)}")


def _check_header(path: Path, header: list[str]) -> None:
    if missing := _nothing_to_ask(header):
        raise PromptError(f"{path}:1: no column {missing}")
    for name, times in Counter(header).items():
        if not name.strip() or times > 1:
            raise PromptError(f"{path}:1: column {name!r} is blank or there twice; rename it")


def _typed(cells: list[str], name: str) -> list[Scalar]:
    """A column's values: empty cells as null, and numbers where all of them survive as such.

    A number that would be written otherwise than the cell stays a text, as does its column: `007`,
    `3.10`, an id of 25 digits.
    """
    filled = [cell for cell in cells if cell]
    if name not in TEXTS and filled:
        for read in (_integer, _float, _TRUTH.get):
            values = {cell: read(cell) for cell in set(filled)}
            if None not in values.values():
                return [values[cell] if cell else None for cell in cells]
    return [cell or None for cell in cells]


def _integer(cell: str) -> int | None:
    if not re.fullmatch(r"-?[0-9]{1,19}", cell):
        return None
    value = int(cell)
    return value if str(value) == cell and in_int64(value) else None


def _float(cell: str) -> float | None:
    whole = _integer(cell)
    if whole is not None:
        return float(whole) if abs(whole) <= _EXACT else None
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", cell):
        return None
    value = float(cell)
    return value if repr(value) == cell else None


def _parquet(path: Path) -> Iterator[Read]:
    import polars as pl

    try:
        frame = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise PromptError(f"{path} cannot be read as Parquet: {reason}") from error
    if missing := _nothing_to_ask(frame.columns):
        raise PromptError(f"{path}: no column {missing}")
    for number, values in enumerate(frame.iter_rows(named=True), 1):
        yield Row(f"{path}: row {number}", values)
