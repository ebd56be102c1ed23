"""Tables and progress for people: rich on a terminal, plain elsewhere."""

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from logitbank.cli.plain import CONTROL, ONE_LINE
from logitbank.cli.screen.brief import brief_of
from logitbank.cli.screen.run import account, forecast
from logitbank.wording import counted

if TYPE_CHECKING:
    import polars as pl

    from logitbank.analysis.results.study import Study
    from logitbank.engine.workers.events import Summary

# No emoji: a prompt's ":cat:" is shown as it is written.
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=not sys.stderr.isatty())
out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 200)

_SHOWN = 40
"""Rows of a query's answer on a terminal; pipes, files and the other formats have them all."""


def clean(text: object) -> str:
    """Text from a bank or a model, with control characters made visible and markup escaped."""
    return escape(str(text).translate(CONTROL))


def one_line(text: object) -> str:
    """As `clean`, of text that may not begin a line of its own."""
    return escape(str(text).translate(ONE_LINE))


def print_table(frame: "pl.DataFrame", *, title: str = "", limit: int = 40) -> None:
    """Rounded; on a terminal at most `limit` rows, with a line about the rest, elsewhere all.

    Where that is narrow, what is the same in every row is told once above the table. One that is
    too wide even so is left to the terminal to wrap: cut numbers would be wrong ones.
    """
    shown = frame.head(limit) if sys.stdout.isatty() else frame
    widths = _widths(shown)
    if _total(widths) > out.width and len(frame) > 1:
        same = [name for name in frame.columns if frame[name].n_unique() == 1]
        if same:
            say(one_line(", ".join(f"{name} {frame[name][0]}" for name in same)), to=out)
        shown, widths = shown.drop(same), {n: w for n, w in widths.items() if n not in same}
    if sys.stdout.isatty():
        table = _table(shown, title)
        table.width = _total(widths) if _total(widths) > out.width else None
        out.print(table, crop=False)
    else:
        out.file.writelines(f"{line}\n" for line in _plain(shown, widths, title))
    if frame.is_empty():
        say("no rows")
    if len(frame) > len(shown):
        named = f"--table {title} --format csv" if title else "--format csv"
        more = counted(len(frame) - len(shown), "more row")
        say(f"… {more}; {clean(named)} prints all of them, and so does a pipe", to=out)


# Where the home is read-only, it warns of the temporary folder that it uses instead.
logging.getLogger("matplotlib").setLevel(logging.ERROR)


def _table(frame: "pl.DataFrame", title: str) -> Table:
    table = Table(title=title or None, title_justify="left", header_style="bold", box=None)
    for name, dtype in frame.schema.items():
        table.add_column(clean(name), justify="right" if dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        table.add_row(*(escape(_text(value)) for value in row))
    return table


def _widths(frame: "pl.DataFrame") -> dict[str, int]:
    """Columns on the screen that each column's widest cell takes."""
    widths = [cell_len(name) for name in frame.columns]
    for row in frame.iter_rows():
        widths = [max(w, cell_len(_text(value))) for w, value in zip(widths, row, strict=True)]
    return dict(zip(frame.columns, widths, strict=True))


def _total(widths: Mapping[str, int]) -> int:
    return sum(width + 2 for width in widths.values())  # a space on either side


def _plain(frame: "pl.DataFrame", widths: Mapping[str, int], title: str) -> Iterator[str]:
    """The lines of a table as Rich draws it, one for each row.

    Rich takes 3 ms a row, and a table in a pipe may have thousands.
    """
    if title:
        yield title
    right = [dtype.is_numeric() for dtype in frame.dtypes]
    for row in chain([frame.columns], frame.iter_rows()) if widths else ():
        cells = []
        for value, width, to_the_right in zip(row, widths.values(), right, strict=True):
            text = _text(value)
            space = " " * (width - cell_len(text))
            cells.append(f" {space}{text} " if to_the_right else f" {text}{space} ")
        yield "".join(cells)


def print_frame(frame: "pl.DataFrame", form: str) -> None:
    """One frame in the format asked for: a table for people, or as `table_bytes` gives it."""
    if form == "table":
        print_table(frame)
    elif form == "csv" and sys.stdout.isatty():
        sys.stdout.write(_bytes(_in_lines(frame), form).decode().translate(CONTROL))
    else:
        write_bytes(_bytes(frame, form), form)


def _bytes(frame: "pl.DataFrame", form: str) -> bytes:
    from logitbank.analysis.results.files import Format, table_bytes

    return table_bytes(frame, cast("Format", form))


def write_bytes(content: bytes, form: str) -> None:
    """Data to stdout: text as it is but for control characters on a terminal, Parquet never there.

    Raises
    ------
    UsageError
        Parquet on a terminal.
    """
    from logitbank.errors import UsageError

    if form == "parquet":
        if sys.stdout.isatty():
            raise UsageError(
                "Parquet is no text for a terminal; send it to a file with > FILE.parquet"
            )
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    text = content.decode()
    text = text if text.endswith("\n") else f"{text}\n"
    sys.stdout.write(text.translate(CONTROL) if sys.stdout.isatty() else text)


def print_answer(result: "pl.LazyFrame", form: str) -> None:
    """Collect and print what a query says; as a table on a terminal only its first rows."""
    from logitbank.store.read.sql import answered

    first = form == "table" and sys.stdout.isatty()
    with answered():
        rows = (result.head(_SHOWN + 1) if first else result).collect()
        print_frame(rows.head(_SHOWN) if first else rows, form)
    if first and len(rows) > _SHOWN:
        say(f"only the first {_SHOWN} rows; all are in a pipe, --out FILE, or another --format")


def _in_lines(table: "pl.DataFrame") -> "pl.DataFrame":
    """A table whose names and texts have no line break."""
    import polars as pl

    texts = pl.selectors.by_dtype(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
    escaped = table.with_columns(
        texts.str.replace_all("\n", "\\n", literal=True).str.replace_all("\t", "\\t", literal=True)
    )
    return escaped.rename(lambda name: name.translate(ONE_LINE))


def _text(value: Any) -> str:
    """A value as one line, with control characters made visible."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).translate(ONE_LINE)


def print_summary(summary: "Summary", *, bank: str, dry_run: bool) -> None:
    """What an extraction did, and what to do next."""
    if dry_run:
        for line in forecast(summary):
            say(line)
        say("dry run: nothing was written")
        return
    for failure in summary.failed:
        say(f"[red]failed[/red] {clean(failure.message)}")
    explained = [failure for failure in summary.failed if failure.log_tail]
    if explained:
        about = explained[-1]
        say(f"The last lines of {clean(bank)}.log about {clean(about.checkpoint)}:", style="dim")
        for line in about.log_tail:
            say("  " + clean(line), style="dim")
    if summary.plan.rows or summary.failed:
        _print_account(summary, bank)
    if summary.interrupted:
        say("interrupted: what was committed is kept; the same command goes on from there")
    elif summary.failed:
        tried = len(summary.done) + len(summary.failed)
        if (untried := len(summary.plan.to_run) - tried) > 0:
            say(
                f"{untried:,} more {_were(untried)} not tried, as nothing says that"
                f" {'it' if untried == 1 else 'they'} would fare better"
            )
        say("the same command tries again what failed; leave it out with --steps")


def _print_account(summary: "Summary", bank: str) -> None:
    rate = summary.rows / summary.seconds if summary.seconds else 0
    others = f"; {summary.others:,} more {_were(summary.others)} there by then" * bool(
        summary.others
    )
    say(
        f"{len(summary.done):,} of {counted(len(summary.plan.to_run), 'checkpoint')} done, "
        f"{counted(summary.rows, 'row')} in {summary.seconds:,.1f} s ({rate:,.3g} a second{others})"
        f" → {clean(bank)}"
    )
    for line in account(summary):
        say(line)


def print_lines(lines: Iterable[str]) -> None:
    """Sentences: wrapped between words on a terminal, each as one line elsewhere."""
    for line in lines:
        say(clean(line), to=out)


def print_verbatim(lines: Iterable[str]) -> None:
    """Each as one line, however wide: no space of a prompt becomes the end of a line."""
    for line in lines:
        out.print(clean(line), soft_wrap=True)


def say(text: str, *, to: Console | None = None, style: str = "") -> None:
    """Print marked-up text, wrapped between words on a terminal; a path stays in one piece."""
    console = to or err
    styled = Text.from_markup(text, style=style, emoji=False)
    lines = _wrapped(styled, console.width) if console.is_terminal else [styled]
    for line in lines:
        console.print(line, soft_wrap=True)


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    for line in text.split("\n", allow_blank=True):
        ends, used = [], 0
        for word in re.finditer(r"\s*\S+\s*", line.plain):
            if used and used + cell_len(word[0].rstrip()) > width:
                ends.append(word.start())
                used = 0
            used += cell_len(word[0])
        for part in line.divide(ends):
            part.rstrip()
            yield part


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def print_study(study: "Study[Any]", *, table: str | None, form: str) -> None:
    """The sentences and main tables for people, or the tables as data."""
    from logitbank.errors import UsageError

    tables = study.result.tables()
    if table is not None and table not in tables:
        raise UsageError(f"there is no table {table!r}; there are {', '.join(tables)}")
    if table is not None:
        print_frame(tables[table], form)
    elif form == "json":
        from logitbank.analysis.results.tables import json_rows

        document = {name: json_rows(frame) for name, frame in tables.items()}
        json.dump(document, sys.stdout, default=str, indent=1)
        sys.stdout.write("\n")
    elif form != "table":
        raise UsageError(f"name one table for {form} with --table; there are {', '.join(tables)}")
    else:
        # With a report the tables are files, and the sentences are what is read here.
        brief = brief_of(study.result)
        for name, columns in brief.items() if study.report is None else ():
            if len(tables[name]):
                keys = ("model", "run", "verb", "plateau", "step")
                shown = [c for c in (*keys, *columns) if c in tables[name].columns]
                print_table(tables[name].select(shown), title=name)
        for line in study.summary:
            say(one_line(line), to=out)
    if study.report is not None:
        say(f"Report: {clean(study.report)}")
