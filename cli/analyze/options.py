"""The command `analyze options`."""

from typing import Annotated, Literal

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import (
    BankPath,
    FilterFile,
    Format,
    Models,
    Out,
    Style,
    Table,
    Width,
    filtered,
)


def options(
    bank: BankPath,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Prompt set to analyse.", autocompletion=bank_prompts),
    ] = None,
    model: Models = None,
    score: Annotated[
        Literal["sum", "token", "byte", "character", "first", "pmi"],
        typer.Option(help="What options of several tokens are compared by."),
    ] = "sum",
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Shares of any prompts' options, and how often the answer wins, by checkpoint."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.options(
        filtered(bank, by),
        prompts=prompts,
        models=model,
        score=score,
        out=out,
        paper=logitbank.Paper(width, style),
    )
    print_study(study, table=table, form=form)
