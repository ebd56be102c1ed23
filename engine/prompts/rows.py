"""The rows of a JSONL, CSV or Parquet prompt file: values by field, with their line."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.engine.prompts.values import Scalar
from logitbank.errors import PromptError, UsageError
from logitbank.store.format.limits import in_int64, shown

CONTENT = ("text", "sentence")
"""The fields with the content of a prompt; each prompt has one of them."""
TEXT_FIELDS = ("text", "options", "target", "answer", "order_seed", "mask")
"""The fields of a prompt with a text."""
FIELDS = ("id", "sentence", *TEXT_FIELDS)
_TEXTS = frozenset(FIELDS) - {"order_seed", "mask"}
"""Fields whose CSV cells are never numbers."""
_TRUTH = {"true": True, "True": True, "false": False, "False": False}
_EXACT = 2**53
"""Whole numbers up to this one are exact as float64."""


class Row(NamedTuple):
    """One row of a prompt file."""

    line: int
    """Line number; in a Parquet file row number, from 1."""
    values: Mapping[str, Any] | PromptError
    """Values by field, or why the row cannot be read."""


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a `.jsonl`, `.csv` or `.parquet` file.

    Raises
    ------
    UsageError
        The file does not exist, or has another ending.
    PromptError
        The file as a whole cannot be read.
    """
    readers = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
    if path.suffix.lower() not in readers:
        raise UsageError(
            f"Prompt file {path} has the ending {path.suffix!r}: use {', '.join(readers)}."
        )
    if not path.is_file():
        raise UsageError(f"Prompt file {path} does not exist.")
    try:
        yield from readers[path.suffix.lower()](path)
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is not UTF-8 text ({error.reason}). Convert it.") from error


def _jsonl(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield Row(number, _json_row(line))


def _json_row(line: str) -> dict[str, Any] | PromptError:
    try:
        values = json_value(line.rstrip("\n"), "line")
    except PromptError as error:
        return error
    if not isinstance(values, dict):
        return PromptError(f"{shown(values)} is not a JSON object")
    missing = _missing_content(values)
    return PromptError(missing) if missing else values


def _missing_content(names: Iterable[str]) -> str:
    """An error message if no field has the content of a prompt; otherwise empty."""
    if not set(CONTENT).isdisjoint(names):
        return ""
    close = (near for name in names for near in get_close_matches(name, CONTENT, n=1, cutoff=0.7))
    near = next(close, None)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"'text' is missing; found {', '.join(map(repr, names)) or 'nothing'}{hint}"


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)  # The default of 131,072 characters stops a few-shot prompt.
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        numbered = []
        try:
            header = next(reader, [])
            start = reader.line_num + 1
            for row in reader:
                if row:
                    numbered.append((start, row))
                start = reader.line_num + 1
        except csv.Error as error:
            raise PromptError(f"{path}:{reader.line_num}: broken CSV ({error})") from None
    if missing := _missing_content(header):
        raise PromptError(f"{path}:1: column {missing}")
    if len({*header}) < len(header) or not all(name.strip() for name in header):
        raise PromptError(f"{path}:1: the header has a blank or repeated name")
    complete = [row for _, row in numbered if len(row) == len(header)]
    columns = [_typed([row[place] for row in complete], name) for place, name in enumerate(header)]
    typed = iter(zip(*columns, strict=True))
    for start, row in numbered:
        if len(row) == len(header):
            yield Row(start, dict(zip(header, next(typed), strict=True)))
        else:
            yield Row(start, PromptError(f"{len(row)} cells, but the header has {len(header)}"))


def _typed(cells: list[str], name: str) -> list[Scalar]:
    """The values of a column: null for empty cells, and numbers if no cell changes by that.

    A column with a cell such as `007`, `3.10` or an id of 25 digits is text.
    """
    filled = {cell for cell in cells if cell}
    if name not in _TEXTS and filled:
        for read in (_integer, _float, _TRUTH.get):
            values = {cell: read(cell) for cell in filled}
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


def _parquet(path: Path) -> Iterator[Row]:
    import polars as pl

    try:
        frame = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise PromptError(f"{path} cannot be read as Parquet: {reason}") from error
    if missing := _missing_content(frame.columns):
        raise PromptError(f"{path}: column {missing}")
    for number, values in enumerate(frame.iter_rows(named=True), 1):
        yield Row(number, values)


def json_value(text: str, what: str) -> Any:
    """The value of a JSON text in which no object has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except PromptError:
        raise
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise PromptError(f"{what} {shown(text)} is broken JSON ({reason})") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise PromptError(f"key {key!r} is repeated")
    return members


def near_field(name: str) -> str:
    """The field of which a name is a likely misspelling; empty without one.

    >>> [near_field(name) for name in ("otpions", "anwser", "targt", "Answer", "answer", "paired")]
    ['options', 'answer', 'target', 'answer', '', '']
    """
    if name in FIELDS:
        return ""
    fields = [f for f in FIELDS if f != "id" and abs(len(f) - len(name)) <= 1]
    return next(iter(get_close_matches(name.lower(), fields, n=1, cutoff=0.8)), "")
