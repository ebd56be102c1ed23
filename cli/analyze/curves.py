"""The command `analyze curves`."""

from typing import Annotated

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


def curves(
    bank: BankPath,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(help="Prompt sets to analyse; all by default.", autocompletion=bank_prompts),
    ] = None,
    model: Models = None,
    entropy: Annotated[
        bool, typer.Option(help="Read every full row for the entropy of predictions.")
    ] = True,
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Entropy, the right answer, and agreement with the end, by checkpoint."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.curves(
        filtered(bank, by),
        prompts=prompts,
        models=model,
        entropy=entropy,
        out=out,
        paper=logitbank.Paper(width, style),
    )
    print_study(study, table=table, form=form)
