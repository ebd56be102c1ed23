"""The command `analyze layers`."""

from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import BankPath, Format, Models, Out, Style, Table, Width


def layers(
    bank: BankPath,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(help="Prompt sets to analyse; all by default.", autocompletion=bank_prompts),
    ] = None,
    model: Models = None,
    several_tokens: Annotated[
        bool, typer.Option(help="Options of several tokens too, which take the whole head.")
    ] = True,
    table: Table = None,
    form: Format = "table",
) -> None:
    """After which layer the right option is the first, by checkpoint: a logit lens."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.layers(
        bank,
        prompts=prompts,
        models=model,
        several_tokens=several_tokens,
        out=out,
        paper=logitbank.Paper(width, style),
    )
    print_study(study, table=table, form=form)
