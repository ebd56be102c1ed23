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
        list[str] | None,
        typer.Option(help="Prompt sets to analyse; all by default.", autocompletion=bank_prompts),
    ] = None,
    model: Models = None,
    score: Annotated[
        Literal["sum", "token", "byte", "character", "first", "pmi"],
        typer.Option(help="What options of several tokens are compared by."),
    ] = "sum",
    entropy: Annotated[
        bool, typer.Option(help="Read every full row for the entropy of predictions.")
    ] = True,
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Options, right answers, entropy and agreement of any prompts, by checkpoint."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.options(
        filtered(bank, by),
        prompts=prompts,
        models=model,
        score=score,
        entropy=entropy,
        out=out,
        paper=logitbank.Paper(width, style),
    )
    print_study(study, table=table, form=form)
