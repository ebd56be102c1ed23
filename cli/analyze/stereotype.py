"""The command `analyze stereotype`."""

from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import (
    Banks,
    FilterFile,
    Format,
    Models,
    Out,
    Partial,
    Prompts,
    SaveResults,
    Style,
    Table,
    Width,
    filtered,
)


def stereotype(
    banks: Banks,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Prompts = "stereotype-accuracy",
    winobias: Annotated[
        str, typer.Option(help="Prompt set for sa_gender and JSD-P, where a bank has it.")
    ] = "winobias",
    model: Models = None,
    save_results: SaveResults = None,
    partial: Partial = False,
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Stereotype accuracy and sa_gender by checkpoint, against JSD-P."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.stereotype(
        [filtered(bank, by) for bank in banks],
        prompts=prompts,
        winobias=winobias,
        models=model,
        out=out,
        paper=logitbank.Paper(width, style),
        save_results=save_results,
        partial=partial,
    )
    print_study(study, table=table, form=form)
