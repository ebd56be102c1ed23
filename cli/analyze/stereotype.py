"""The command `analyze stereotype`."""

from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import (
    Banks,
    Format,
    Models,
    Out,
    Partial,
    Prompts,
    Ray,
    SaveRecords,
    SaveResults,
    Style,
    Table,
    Width,
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
    winobias_em: Annotated[
        str, typer.Option(help="Prompt set for winobias_em, where a bank has it.")
    ] = "winobias-em",
    model: Models = None,
    save_results: SaveResults = None,
    save_records: SaveRecords = None,
    partial: Partial = False,
    ray: Ray = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Stereotype accuracy, sa_gender and winobias_em by checkpoint, against JSD-P."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.stereotype(
        banks,
        prompts=prompts,
        winobias=winobias,
        winobias_em=winobias_em,
        models=model,
        out=out,
        paper=logitbank.Paper(width, style),
        save_results=save_results,
        save_records=save_records,
        partial=partial,
        ray=ray,
    )
    print_study(study, table=table, form=form)
