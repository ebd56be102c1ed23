"""The command `query`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logitbank.cli.options import BankPath, Format

if TYPE_CHECKING:
    import polars as pl

SHOWN = 40
"""Rows of a table on a terminal; pipes, files and the other formats have them all."""


def query(
    bank: BankPath,
    sql: Annotated[
        str, typer.Argument(help="A SELECT over checkpoints, prompts, options and scores.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File for the result: .csv, .parquet, or .jsonl.", show_default=False),
    ] = None,
    allow_files: Annotated[
        bool, typer.Option("--allow-files", help="Let the SQL read other files and URLs too.")
    ] = False,
    form: Format = "table",
) -> None:
    """Ask a bank, or a view, in SQL; only what the query touches is read."""
    from logitbank.cli.screen.tables import clean, print_frame, say
    from logitbank.store.filter.view import open_bank
    from logitbank.store.read.sql import answered

    result = open_bank(bank).sql(sql, allow_files=allow_files)
    if out is not None:
        write(result, out)
        say(f"written to {clean(out)}")
    elif form == "table" and sys.stdout.isatty():
        with answered():
            rows = result.head(SHOWN + 1).collect()
        print_frame(rows.head(SHOWN), form)
        if len(rows) > SHOWN:
            say(f"only the first {SHOWN} rows; all are in a pipe, --out FILE, --format csv or json")
    else:
        with answered():
            rows = result.collect()
            print_frame(rows, form)


def write(result: "pl.LazyFrame", out: Path) -> None:
    """Write a result to a new file, without holding it all.

    Raises
    ------
    UsageError
        The file is there already, its folder is not, or its ending is none of the three.
    """
    from logitbank.errors import UsageError
    from logitbank.store.files.objects import require_outside
    from logitbank.store.read.sql import answered

    sinks = {".csv": "sink_csv", ".parquet": "sink_parquet", ".jsonl": "sink_ndjson"}
    if (sink := sinks.get(out.suffix.lower())) is None:
        raise UsageError(f"{out} ends in none of {', '.join(sinks)}; name the format by the ending")
    if out.exists():
        raise UsageError(f"{out} is there already; choose another name or remove it")
    if not out.parent.is_dir():
        raise UsageError(f"{out} cannot be written: there is no folder {out.parent}; make it first")
    if sink == "sink_csv":
        from logitbank.analysis.results.csv_text import without_formulas

        result = without_formulas(result)
    require_outside(out)
    beside = out.with_name(f".{out.name}.part")
    try:
        with answered():
            getattr(result, sink)(beside)
        beside.rename(out)
    finally:
        beside.unlink(missing_ok=True)
