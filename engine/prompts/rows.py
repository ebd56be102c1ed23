"""The rows of a prompt file, whatever its kind: values by field, and their line.

This module knows the names of fields, and builds no prompts.
"""

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

ABOUT = ("text", "messages", "sentence", "pair")
"""The fields that a prompt is about; each prompt has one of them."""
BESIDE: Mapping[str, tuple[str, ...]] = {
    "options": ("text", "messages"),
    "target": ("text", "messages"),
    "answer": ("text", "messages", "pair"),
    "order_seed": ("text", "messages"),
    "mask": ("text", "messages"),
    "spans": ("sentence",),
}
"""The other fields, each with those beside which it stands."""
FIELDS = ("id", *ABOUT, *BESIDE)
CONDITION = "condition"
"""A column that beside a text names the prompt whose scores may be taken away."""
_TEXTS = frozenset({*FIELDS, CONDITION}) - {"pair", "order_seed", "mask"}
"""Fields whose cells are never numbers."""
_SHORT = 4
"""Letters of a field up to which another letter makes another word: `task` is no misspelt `mask`.
"""
_TRUTH = {"true": True, "True": True, "false": False, "False": False}
_EXACT = 2**53
"""Whole numbers up to here are the same number as a float."""


class Row(NamedTuple):
    """One row of a prompt file."""

    line: int
    """Its line; in a Parquet file its number, from 1."""
    values: Mapping[str, Any] | PromptError
    """Values by field, or why the row cannot be read; the next is read all the same."""


def rows_of(path: Path) -> Iterator[Row]:
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
        return PromptError(f"{shown(values)} is no prompt; write a JSON object with a text")
    missing = _missing_field(values)
    return PromptError(f"no {missing}") if missing else values


def _missing_field(names: Iterable[str]) -> str:
    """The end of a message where no field is there that a prompt is about; else empty."""
    if not set(ABOUT).isdisjoint(names):
        return ""
    close = (near for name in names for near in get_close_matches(name, ABOUT, n=1, cutoff=0.7))
    near = next(close, None)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"'text'; found {', '.join(map(repr, names)) or 'nothing'}{hint}"


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)  # Python's 131,072 characters stop a few-shot prompt
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        starts, cells = [], []
        try:
            header = next(reader, [])
            start = reader.line_num + 1
            for row in reader:
                if row:
                    starts.append(start)
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
    for start, row in zip(starts, cells, strict=True):
        if len(row) == len(header):
            yield Row(start, dict(zip(header, next(typed), strict=True)))
        else:
            short = PromptError(f"{len(row)} cells, the header has {len(header)}")
            yield Row(start, short)


def _check_header(path: Path, header: list[str]) -> None:
    if missing := _missing_field(header):
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
    if name not in _TEXTS and filled:
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


def _parquet(path: Path) -> Iterator[Row]:
    import polars as pl

    try:
        frame = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise PromptError(f"{path} cannot be read as Parquet: {reason}") from error
    if missing := _missing_field(frame.columns):
        raise PromptError(f"{path}: no column {missing}")
    for number, values in enumerate(frame.iter_rows(named=True), 1):
        yield Row(number, values)


def json_value(text: str, what: str) -> Any:
    """The value of a JSON text, in which no object names a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except PromptError:
        raise
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        reason = error.msg if isinstance(error, json.JSONDecodeError) else reason
        raise PromptError(f"{what} {shown(text)} is broken JSON ({reason})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise PromptError(f"{key!r} is there twice; rename one")
    return members


def near_field(name: str) -> str:
    """The field that a name is one letter more, less or other than, or two letters swapped.

    Empty where it is none, or a field itself.

    >>> [near_field(name) for name in ("otpions", "anwser", "targt", "Answer", "answer", "task")]
    ['options', 'answer', 'target', 'answer', '', '']
    """
    fields = [field for field in (*FIELDS, CONDITION) if field != "id"]  # which has a default
    if name in (*fields, "id"):
        return ""
    return next((field for field in fields if _one_edit(name.lower(), field)), "")


def _one_edit(name: str, field: str) -> bool:
    """Whether a name is a field, or becomes it by one letter or by a swap of neighbours."""
    if name == field:
        return True
    shorter, longer = sorted((name, field), key=len)
    if len(longer) - len(shorter) == 1:
        return any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
    if len(longer) != len(shorter):
        return False
    at = [i for i, (a, b) in enumerate(zip(name, field, strict=True)) if a != b]
    if len(at) == 1:
        return len(field) > _SHORT
    return at[1:] == [at[0] + 1] and name[at[0]] == field[at[1]] and name[at[1]] == field[at[0]]
