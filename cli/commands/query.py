"""The command `query`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import BankPath, Format


def query(
    bank: BankPath,
    sql: Annotated[
        str, typer.Argument(help="A SELECT over checkpoints, prompts, options and scores.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the result: .csv, .parquet, .jsonl or .json.", show_default=False
        ),
    ] = None,
    form: Format = "table",
) -> None:
    """Query a bank in SQL. Only the data that the query needs is read."""
    from logitbank.cli.output import clean, print_answer, say

    result = logitbank.query(bank, sql, out=out)
    if out is None:
        print_answer(result, form)
    else:
        say(f"written to {clean(out)}")
