"""What commands print: sentences and tables for people, and tables as data."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from logitbank.cli.plain import CONTROL, ONE_LINE
from logitbank.wording import counted

if TYPE_CHECKING:
    import polars as pl

    from logitbank.analysis.study import Study

# No emoji: a prompt's ":cat:" is shown as it is written.
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=not sys.stderr.isatty())
out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 200)

MOST_ROWS = 40
"""Rows of a table on a terminal; pipes, files and the other formats have all."""
KEYS = ("model", "run", "verb", "plateau", "step")
"""Columns that begin a table on the screen."""


def clean(text: object) -> str:
    """Text from a bank or a model, with control characters made visible and markup escaped."""
    return escape(str(text).translate(CONTROL))


def one_line(text: object) -> str:
    """As `clean`, of text that may not begin a line of its own."""
    return escape(str(text).translate(ONE_LINE))


def say(text: str, *, to: Console | None = None, style: str = "") -> None:
    """Print marked-up text, wrapped between words on a terminal; a path stays in one piece."""
    console = to or err
    line = Text.from_markup(text, style=style, emoji=False, overflow="ignore")
    for part in line.wrap(console, console.width) if console.is_terminal else (line,):
        console.print(part, soft_wrap=True)


def exit_with(problems: Mapping[str, str]) -> None:
    """Name what could not be analysed on stderr, and exit with code 1; nothing without problems."""
    import typer

    for title, problem in problems.items():
        err.print(f"{one_line(title)}: {one_line(problem)}", soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def print_lines(lines: Iterable[str]) -> None:
    """Sentences on stdout."""
    for line in lines:
        say(clean(line), to=out)


def print_verbatim(lines: Iterable[str]) -> None:
    """Each as one line, however wide: no space of a prompt becomes the end of a line."""
    for line in lines:
        out.print(clean(line), soft_wrap=True)


def print_table(frame: "pl.DataFrame", *, title: str = "", limit: int = MOST_ROWS) -> None:
    """A table for people: on a terminal at most `limit` rows, elsewhere all."""
    shown = frame.head(limit) if sys.stdout.isatty() else frame
    if sys.stdout.isatty():
        table = Table(title=title or None, title_justify="left", header_style="bold", box=None)
        for name, dtype in shown.schema.items():  # folded: a number that is cut is another one
            justify: Literal["left", "right"] = "right" if dtype.is_numeric() else "left"
            table.add_column(one_line(name), justify=justify, overflow="fold")
        for row in shown.iter_rows():
            table.add_row(*(escape(_cell(value)) for value in row))
        out.print(table, crop=False)
    else:
        _print_plain(shown, title)
    if frame.is_empty():
        say("no rows")
    if len(frame) > len(shown):
        more = counted(len(frame) - len(shown), "more row")
        say(f"… {more}: use --format csv or a pipe for all of them.", to=out)


def _print_plain(frame: "pl.DataFrame", title: str) -> None:
    """Aligned columns. Rich takes 3 ms a row, and a table in a pipe may have thousands."""
    if title:
        print(title)
    right = [dtype.is_numeric() for dtype in frame.dtypes]
    rows = [
        [*map(_cell, frame.columns)],
        *([_cell(value) for value in row] for row in frame.iter_rows()),
    ]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            (
                " " * (width - cell_len(text)) + text
                if numeric
                else text + " " * (width - cell_len(text))
            )
            for text, width, numeric in zip(row, widths, right, strict=True)
        )
        print(" " + "  ".join(cells))


def _cell(value: Any) -> str:
    """A value as one line, with control characters made visible."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value).translate(ONE_LINE)


def print_frame(frame: "pl.DataFrame", form: str) -> None:
    """One frame in the format asked for: a table for people, or as `table_bytes` gives it."""
    from logitbank.analysis.results.files import Format, table_bytes

    if form == "table":
        print_table(frame)
    else:
        write_bytes(table_bytes(frame, cast("Format", form)), form)


def write_bytes(content: bytes, form: str) -> None:
    """Data to stdout: text as it is but for control characters on a terminal, Parquet never there.

    Raises
    ------
    UsageError
        Parquet on a terminal.
    """
    from logitbank.errors import UsageError

    if form != "parquet":
        text = content.decode()
        text = text if text.endswith("\n") else f"{text}\n"
        sys.stdout.write(text.translate(CONTROL) if sys.stdout.isatty() else text)
        return
    if sys.stdout.isatty():
        raise UsageError("Parquet cannot be printed on a terminal: add > FILE.parquet.")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


def print_answer(result: "pl.LazyFrame", form: str) -> None:
    """Collect and print the result of a query; as a table on a terminal only its first rows."""
    from logitbank.store.read.sql import answered

    first = form == "table" and sys.stdout.isatty()
    with answered():
        rows = (result.head(MOST_ROWS + 1) if first else result).collect()
        print_frame(rows.head(MOST_ROWS) if first else rows, form)
    if first and len(rows) > MOST_ROWS:
        say(f"These are the first {MOST_ROWS} rows: use a pipe, --out FILE or --format for all.")


def print_study(study: "Study[Any]", *, table: str | None, form: str) -> None:
    """The findings for people; a table, or findings and tables as JSON.

    Raises
    ------
    UsageError
        There is no such table, or a format of tables without the name of one.
    """
    from logitbank.errors import UsageError

    if table is not None:
        if table not in study.tables:
            raise UsageError(f"There is no table {table!r}: choose {', '.join(study.tables)}.")
        frame = study.tables[table]
        first = [name for name in (*KEYS, *study.screen.get(table, ())) if name in frame.columns]
        if form == "table" and sys.stdout.isatty() and first:
            frame = frame.select(dict.fromkeys(first))
        print_frame(frame, form)
    elif form == "json":
        _print_json(study.as_dict())
    elif form != "table":
        raise UsageError(f"--format {form} needs --table: choose one of {', '.join(study.tables)}.")
    else:
        print_findings(study)


def print_studies(studies: "Mapping[str, Study[Any]]", *, form: str) -> None:
    """The findings of several analyses, each below its title; JSON by title."""
    from logitbank.errors import UsageError

    if form == "json":
        _print_json({title: study.as_dict() for title, study in studies.items()})
        return
    if form != "table":
        raise UsageError(f"--format {form} needs one analysis: `logitbank analyze NAME BANK`.")
    for title, study in studies.items():
        say(f"[bold]{one_line(title)}[/bold]", to=out)
        print_findings(study)


def print_findings(study: "Study[Any]", *, most: int | None = None) -> None:
    """Findings, and what they do not include; notes and cautions are on the page."""
    for finding in study.findings[:most]:
        say(one_line(finding), to=out)
    for line in (*study.missing, *study.notes, *study.cautions) if most is None else study.missing:
        say(one_line(line), to=out)


def _print_json(document: Any) -> None:
    json.dump(document, sys.stdout, default=str, indent=1, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")
