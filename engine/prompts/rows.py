"""The one reader of data files: text, lines, and rows of JSONL, CSV, TSV and Parquet files."""

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from sys import intern
from typing import Any

from logitbank.engine.prompts.findings import also_in
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
_MISSING = ("NA", "NaN", "nan", "NULL", "None")
"""How R, pandas and Python write a missing value into a CSV file."""
_INDEX = ("", "Unnamed: 0")
"""Names of the column of row numbers that pandas and R write."""
_TRUTH = {"true": True, "True": True, "false": False, "False": False}
_SHOWN = 8
"""Largest number of names that an error lists."""
_EXACT = 2**53
"""Whole numbers up to this one are exact as float64."""


Row = tuple[int, Mapping[str, Any] | PromptError]
"""Line number, in a Parquet file row number, from 1; values by field, or why there are none."""


def read_rows(
    path: Path, content: Sequence[str] = CONTENT, *, warnings: list[str] | None = None
) -> Iterator[Row]:
    """The rows of a `.jsonl`, `.csv`, `.tsv` or `.parquet` file, each with a field of `content`.

    Parameters
    ----------
    warnings
        A list to which likely mistakes of the file are added.

    Raises
    ------
    UsageError
        The file does not exist, or has another ending.
    PromptError
        The file as a whole cannot be read.
    """
    told = [] if warnings is None else warnings
    table = partial(_table, warnings=told)
    readers: dict[str, Callable[[Path, Sequence[str]], Iterator[Row]]]
    readers = {".jsonl": _jsonl, ".csv": table, ".tsv": table, ".parquet": _parquet}
    if path.suffix.lower() not in readers:
        raise UsageError(
            f"Prompt file {path} has the ending {path.suffix!r}: use {', '.join(readers)}."
        )
    if not path.is_file():
        raise UsageError(f"Prompt file {path} does not exist.")
    yield from readers[path.suffix.lower()](path, content)


def text_of(path: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 with a mark of its byte order.

    Raises
    ------
    PromptError
        The file is in another encoding, or has a zero byte; names the line.
    """
    data = path.read_bytes()
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PromptError(
            f"{path}:{line}: not UTF-8 text ({error.reason}, byte 0x{data[error.start]:02X}). "
            "Save the file as UTF-8; in Excel, as “CSV UTF-8”."
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise PromptError(f"{path}:{line}: a zero byte, which no text has")
    return text


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not blank; errors as `text_of`."""
    # Only a line feed ends a line: JSON may contain other separators, such as U+2028.
    text, start = text_of(path), 0
    for number in count(1):
        end = text.find("\n", start)
        line = text[start : len(text) if end < 0 else end]
        if line.strip():
            yield number, line.rstrip("\r")
        if end < 0:
            return
        start = end + 1


def _jsonl(path: Path, content: Sequence[str]) -> Iterator[Row]:
    for number, line in lines_of(path):
        yield number, _json_row(line, content)


def _json_row(line: str, content: Sequence[str]) -> dict[str, Any] | PromptError:
    try:
        values = json_value(line, "line")
    except PromptError as error:
        return error
    if not isinstance(values, dict):
        return PromptError(f"{shown(values)} is not a JSON object")
    missing = missing_content(values, content)
    return PromptError(missing) if missing else values


def missing_content(names: Iterable[str], content: Sequence[str]) -> str:
    """An error message if no field has the content of a prompt; otherwise empty."""
    if not set(content).isdisjoint(names):
        return ""
    if spaced := [name for name in names if name.strip() in content]:
        return f"{spaced[0]!r} has white space around its name; remove the spaces after separators"
    close = (near for name in names for near in get_close_matches(name, content, n=1, cutoff=0.7))
    near = next(close, None)
    hint = f"; did you mean {near!r}?" if near else ""
    found = ", ".join(map(shown, [*names][:_SHOWN])) or "nothing"
    return f"{content[0]!r} is missing; found {found}{hint}"


_Record = tuple[int, int, list[str]]
"""First and last line of a row of a table, and its cells."""


def _table(path: Path, content: Sequence[str], *, warnings: list[str]) -> Iterator[Row]:
    text, first = text_of(path), 1
    if text.startswith("sep=") and len(mark := text.splitlines()[0]) == 5:  # written by Excel
        text, first, separators = text.split("\n", 1)[-1], 2, [mark[4]]
    else:
        separators = [",", ";", "\t"]
    is_tsv = path.suffix.lower() == ".tsv"
    records = _tsv(text, first) if is_tsv else _csv(path, text, first, separators, content)
    _, _, header = next(records, (first, first, []))
    rows = [record for record in records if record[2] not in ([], [""])]
    warnings += _quotation_warnings(path, rows)
    numbered = [(start, cells) for start, _, cells in rows]
    if is_tsv and all(name[:1] == name[-1:] == '"' for name in header):
        raise PromptError(
            f"{path}:{first}: the header has quotation marks, but TSV has no quoting. Name the "
            "file .csv, or write it without them (quote=FALSE in R)."
        )
    if missing := missing_content(header, content):
        raise PromptError(f"{path}:{first}: column {missing}")
    if header[0] in _INDEX:
        header, numbered = _without_index(path, header, numbered)
    if len({*header}) < len(header) or not all(name.strip() for name in header):
        raise PromptError(f"{path}:{first}: the header has a blank or repeated name")
    if spaced := [name for name in header if name != name.strip()]:
        raise PromptError(
            f"{path}:{first}: column {spaced[0]!r} has white space around its name. Remove the "
            "spaces after separators: those of cells would be part of texts and options."
        )
    complete = [row for _, row in numbered if len(row) == len(header)]
    never = _TEXTS.union(content)
    columns = [
        _typed([row[place] for row in complete], text=name in never)
        for place, name in enumerate(header)
    ]
    typed = iter(zip(*columns, strict=True))
    for start, row in numbered:
        if len(row) != len(header):
            yield start, PromptError(f"{len(row)} cells, but the header has {len(header)}")
            continue
        values = dict(zip(header, next(typed), strict=True))
        named = [name for name in never - {"id"} if values.get(name) in _MISSING]
        # “NA” may be an option.
        if named and not any(values[name] in str(values.get("options")) for name in named):
            field = min(named)
            yield (start, PromptError(
                f"{field} is {values[field]!r}, which R and pandas write for a missing value; leave"
                ' the cell empty (na="" in R, na_rep="" in pandas)'
            ))  # fmt: skip
            continue
        yield start, values


def _tsv(text: str, first: int) -> Iterator[_Record]:
    """The rows of a TSV file, which has no quoting: a quotation mark is part of a cell."""
    for number, line in enumerate(text.split("\n"), first):
        yield number, number, line.removesuffix("\r").split("\t")


def _csv(
    path: Path, text: str, first: int, separators: Sequence[str], content: Sequence[str]
) -> Iterator[_Record]:
    csv.field_size_limit(2**31 - 1)  # The default of 131,072 characters stops a few-shot prompt.
    headers = {
        separator: next(csv.reader(text.splitlines()[:1], delimiter=separator), [])
        for separator in separators
    }
    # The separator whose header has the content, or most names: Excel writes semicolons in half of
    # Europe.
    fitting = [mark for mark, names in headers.items() if not missing_content(names, content)]
    most = max(separators, key=lambda mark: len(headers[mark]))
    reader = csv.reader(StringIO(text, newline=""), strict=True, delimiter=(*fitting, most)[0])
    start = first
    try:
        for cells in reader:
            yield start, reader.line_num + first - 1, cells
            start = reader.line_num + first
    except csv.Error as error:
        raise PromptError(f"{path}:{reader.line_num + first - 1}: broken CSV ({error})") from None


def _quotation_warnings(path: Path, rows: Sequence[_Record]) -> Iterator[str]:
    """Likely mistakes with quotation marks: rows joined by them in CSV, or marks kept in TSV."""
    if path.suffix.lower() == ".tsv":
        quoted = [start for start, _, cells in rows if any(map(_is_quoted, cells))]
        if quoted:
            yield (
                f"{path}:{quoted[0]}: a cell is quoted as in CSV, but TSV has no quoting, so its "
                "quotation marks are part of the text. Name the file .csv if a program quoted it"
                + also_in("line", quoted[1:])
            )
        return
    joined = [(start, end) for start, end, _ in rows if start < end]
    if joined:
        start, end = joined[0]
        yield (
            f"{path}:{start}: lines {start} to {end} are one row, because a quotation mark opens a "
            "cell and the next one closes it. Double the marks that are part of a text"
            + also_in("line", [line for line, _ in joined[1:]])
        )


def _is_quoted(cell: str) -> bool:
    """Whether a cell looks as programs write one that has quotation marks in it.

    >>> _is_quoted('"a ""b"" c"'), _is_quoted('"a" and "b"'), _is_quoted('"a"')
    (True, False, False)
    """
    inner = cell[1:-1]
    is_doubled = '""' in inner and '"' not in inner.replace('""', "")
    return is_doubled and cell[0] == cell[-1] == '"'


def _without_index(
    path: Path, header: list[str], numbered: list[tuple[int, list[str]]]
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Without the column of row numbers that pandas and R write; other values are an error."""
    numbers = [row[0] for _, row in numbered if row]
    if numbers not in ([str(at + base) for at in range(len(numbers))] for base in (0, 1)):
        raise PromptError(
            f"{path}: the first column has no name, and is no count of rows. Name it, or leave it "
            "out (index=False in pandas, row.names=FALSE in R)."
        )
    return header[1:], [(line, row[1:]) for line, row in numbered]


def _typed(cells: list[str], *, text: bool) -> list[Scalar]:
    """The values of a column: null for empty cells, and numbers if no cell changes by that.

    A column with a cell such as `007`, `3.10` or an id of 25 digits is text. Among numbers, `NA`
    and its like are missing values.
    """
    filled = {cell for cell in cells if cell}
    if not text and (known := filled.difference(_MISSING)):
        for read in (_integer, _float, _TRUTH.get):
            values = {cell: read(cell) for cell in known}
            if None not in values.values():
                return [values.get(cell) for cell in cells]
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


def _parquet(path: Path, content: Sequence[str]) -> Iterator[Row]:
    import polars as pl

    try:
        frame = pl.read_parquet(path, glob=False)
    # Polars panics at some damaged files.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise PromptError(f"{path} cannot be read as Parquet: {reason}") from error
    if missing := missing_content(frame.columns, content):
        raise PromptError(f"{path}: column {missing}")
    yield from enumerate(frame.iter_rows(named=True), 1)


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
    members = {intern(key): value for key, value in pairs}  # one key for all lines
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
