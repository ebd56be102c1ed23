"""Output of commands: sentences and tables for people, and tables as data.

Texts from banks and models are untrusted: control characters are made visible, and no text is
interpreted as markup.
"""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from logitbank.errors import UsageError
from logitbank.wording import counted

if TYPE_CHECKING:
    import polars as pl

    from logitbank.analysis.report.sections import Shown
    from logitbank.analysis.study import Study

_DIRECTION_MARKS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_INVISIBLE = (0x200B, 0x2028, 0x2029, *range(0x2060, 0x2065), 0xFEFF)
"""Spaces and line ends without width. The joiners U+200C and U+200D stay: some scripts need
them."""
CONTROL = {
    **{code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), 127, *range(128, 160))},
    **{code: f"\\u{code:04x}" for code in (*_DIRECTION_MARKS, *_INVISIBLE)},
}
"""Table for `str.translate`: control characters as escapes."""
ONE_LINE = {**CONTROL, ord("\n"): "\\n", ord("\t"): "\\t"}
"""The same, with line breaks and tabs as escapes too."""

err = Console(stderr=True, highlight=False, emoji=False)
out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 200)

MOST_ROWS = 40
"""Rows of a table on a terminal. Pipes, files and the other formats get all rows."""
LEAST_TEXT = 12
"""Least width of a column of text on a terminal, in which longer text has several lines."""
KEYS = ("model", "run", "verb", "plateau", "step")
"""Columns that begin a table on a terminal."""


def one_line(text: object) -> str:
    """Text on a single line, with control characters, line breaks and tabs as escapes."""
    return str(text).translate(ONE_LINE)


def say(text: object, *, to: Console | None = None, style: str = "") -> None:
    """Print text on stderr, or on another console. A terminal gets lines that end with a word."""
    console = to or err
    console.print(
        Text(str(text).translate(CONTROL), style=style, overflow="fold"),
        soft_wrap=not console.is_terminal,
    )


def print_command(words: Iterable[object], *, before: str = "") -> None:
    """Print a command on stdout. On a terminal its lines end with a backslash, as in a shell."""
    indent, lines = " " * len(before), [before]
    for word in map(one_line, map(shlex.quote, map(str, words))):
        if out.is_terminal and cell_len(f"{lines[-1]} {word} \\") > out.width and lines[-1].strip():
            lines.append(indent + "  ")
        lines[-1] += word if lines[-1].endswith(" ") or not lines[-1] else f" {word}"
    print_lines([*(f"{line} \\" for line in lines[:-1]), lines[-1]])


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    for line in lines:
        say(line, to=out)


def print_table(frame: "pl.DataFrame", *, hidden: int = 0, kept: str = "") -> None:
    """Print a table for people; in a pipe all of it.

    A terminal gets at most `MOST_ROWS` rows and the columns that fit, and a line about the others.
    `hidden` is the number of columns that the caller has left out; the column `kept` is shown
    before others.
    """
    if not sys.stdout.isatty():
        _print_aligned(frame)
    else:
        rows = [[*map(_cell, row)] for row in frame.head(MOST_ROWS).iter_rows()]
        names = [*map(one_line, frame.columns)]
        widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
        table = Table(header_style="bold", box=None)
        # A number that is cut would be another number.
        leasts = [
            width
            if dtype.is_numeric() or name == kept
            else min(width, max(LEAST_TEXT, cell_len(name)))
            for name, width, dtype in zip(names, widths, frame.dtypes, strict=True)
        ]
        fitting = _fitting(names, leasts, kept)
        for at in fitting:
            name, least, dtype = names[at], leasts[at], frame.dtypes[at]
            justify: Literal["left", "right"] = "right" if dtype.is_numeric() else "left"
            table.add_column(Text(name), justify=justify, overflow="fold", min_width=least)
        shown = len(table.columns)
        for row in rows:
            table.add_row(*(Text(row[at]) for at in fitting))
        out.print(table, crop=False)
        if len(frame) > MOST_ROWS:
            say(f"First {MOST_ROWS} rows. Use a pipe or --format csv for all rows.")
        if hidden := hidden + len(names) - shown:
            say(f"{counted(hidden, 'more column')}. Use a pipe or --format csv for all columns.")
    if frame.is_empty():
        say("No rows.")


def _fitting(names: Sequence[str], widths: Sequence[int], kept: str) -> list[int]:
    """The columns that fit on the terminal, in order: `kept`, then the first ones."""
    left, chosen = out.width, set[int]()
    for at in sorted(range(len(names)), key=lambda at: names[at] != kept):
        left -= widths[at] + 2
        if left < 0 and chosen:
            break
        chosen.add(at)
    return sorted(chosen)


def _print_aligned(frame: "pl.DataFrame") -> None:
    """Aligned columns. Rich takes 3 ms per row, and a table in a pipe may have thousands."""
    rows = [[*map(_cell, row)] for row in (frame.columns, *frame.iter_rows())]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    for row in rows:
        cells = []
        for text, width, right in zip(row, widths, numeric, strict=True):
            padding = " " * (width - cell_len(text))
            cells.append(padding + text if right else text + padding)
        print(" " + "  ".join(cells))


def _cell(value: Any) -> str:
    if value is None or value != value:  # NaN
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else one_line(value)


def print_frame(frame: "pl.DataFrame", form: str) -> None:
    """Print a frame as a table for people, or as data in another format."""
    from logitbank.analysis.results.files import Format, table_bytes

    if form == "table":
        print_table(frame)
    else:
        _write_bytes(table_bytes(frame, cast("Format", form)), form)


def _write_bytes(content: bytes, form: str) -> None:
    if form != "parquet":
        text = content.decode()
        text = text if text.endswith("\n") else f"{text}\n"
        sys.stdout.write(text.translate(CONTROL) if sys.stdout.isatty() else text)
        return
    if sys.stdout.isatty():
        raise UsageError("Parquet cannot be printed on a terminal. Fix: add > FILE.parquet.")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


def print_query(result: "pl.LazyFrame", form: str) -> None:
    """Collect and print the result of a query; for a table on a terminal only its first rows."""
    from logitbank.store.read.sql import query_errors

    if form == "table" and sys.stdout.isatty():
        result = result.head(MOST_ROWS + 1)
    with query_errors():
        print_frame(result.collect(), form)


def print_study(
    study: "Study[Any]", *, table: str | None, form: str, columns: str | None = None
) -> None:
    """Print the findings, one table or some of its columns, or findings and tables as JSON.

    Raises
    ------
    UsageError
        The study has no such table or column, or the format needs the name of a table.
    """
    table = named_table(table, study.tables, study.screen)
    require_table(table, form, study.tables)
    if table is not None and columns is not None:
        print_frame(_with_columns(study.tables[table], columns), form)
    elif table is not None:
        frame = study.tables[table]
        chosen = study.screen.get(table, frame.columns)
        first = [name for name in dict.fromkeys((*KEYS, *chosen)) if name in frame.columns]
        if form == "table" and sys.stdout.isatty() and first:
            print_table(frame.select(first), hidden=frame.width - len(first))
        else:
            print_frame(frame, form)
    elif form == "json":
        _print_json(study.as_dict())
    else:
        print_findings(study)


def _with_columns(frame: "pl.DataFrame", columns: str) -> "pl.DataFrame":
    """Some columns of a table, whose names are separated by commas."""
    names = [name.strip() for name in columns.split(",") if name.strip()]
    if unknown := [name for name in names if name not in frame.columns]:
        listed = ", ".join(frame.columns)
        raise UsageError(f"--columns: unknown column {unknown[0]!r}. Columns: {listed}.")
    return frame.select(list(dict.fromkeys(names)))


def named_table(
    name: str | None, names: Iterable[str], screen: "Mapping[str, Sequence[str]]"
) -> str | None:
    """The table of a name; a number such as `accuracy` is the name of the first table with it."""
    if name is None or name in names:
        return name
    return next((table for table, columns in screen.items() if name in columns), name)


def require_table(table: str | None, form: str, names: Iterable[str]) -> None:
    """Raise UsageError for an unknown table, or for a format that needs the name of one."""
    listed = ", ".join(names)
    if table is None and form not in ("table", "json"):
        raise UsageError(f"--format {form} needs --table. Tables: {listed}.")
    if table is not None and table not in names:
        raise UsageError(f"Unknown table {table!r}. Tables: {listed}.")


def print_studies(studies: "Mapping[str, Study[Any]]", *, form: str) -> None:
    """Print the findings of several analyses, each below its title, or all as JSON by title."""
    if form == "json":
        _print_json({title: study.as_dict() for title, study in studies.items()})
        return
    for title, study in studies.items():
        print_title(title)
        print_findings(study)


def exit_with(problems: Mapping[str, str]) -> None:
    """Print failed analyses on stderr, and exit with code 1 if there are any."""
    import typer

    for title, problem in problems.items():
        say(one_line(f"{title}: {problem}"))
    if problems:
        raise typer.Exit(1)


def print_title(title: str) -> None:
    say(one_line(title), to=out, style="bold")


def print_findings(study: "Shown", *, most: int | None = None) -> None:
    """Print findings and what they leave out; the first `most` findings without notes."""
    notes = (*study.notes, *study.cautions) if most is None else ()
    details = len(study.details) if most is None else 0
    more = []
    if details:
        more = [f"{counted(details, 'finding')} about single models and runs: --format json."]
        if "models" in study.tables:
            name = study.family.replace("_", "-")
            more += [f"One line per model: `logitbank analyze {name} BANK --table models`."]
    shown = (*study.findings[:most], *more, *study.missing, *notes)
    print_lines(map(one_line, shown))


def _print_json(document: Any) -> None:
    json.dump(document, sys.stdout, default=str, indent=1, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")
