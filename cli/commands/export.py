"""The command `export`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import BankPath, PromptSet


def export(
    bank: BankPath,
    out: Annotated[
        Path,
        typer.Argument(help="New file: .csv, .parquet, .jsonl or .json.", show_default=False),
    ],
    prompts: PromptSet = None,
    all_columns: Annotated[
        bool, typer.Option("--all-columns", help="Write every column, one row per token.")
    ] = False,
) -> None:
    """Write the scores of a prompt set as one tidy file, one row per option."""
    from logitbank.cli.output import clean, say

    written = logitbank.export(bank, out, prompts=prompts, all_columns=all_columns)
    say(f"written to {clean(written)}")
