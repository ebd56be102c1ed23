"""The command `analyze unqover`."""

from typing import Annotated, Literal

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import (
    Banks,
    FilterFile,
    Format,
    Models,
    Out,
    Style,
    Table,
    Width,
    filtered,
)

Cells = Literal["last", "all"]


def unqover(
    banks: Banks,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these prompt sets; else all that begin with unqover-.",
            autocompletion=bank_prompts,
        ),
    ] = None,
    model: Models = None,
    topk: Annotated[
        int | None,
        typer.Option(min=1, help="Probabilities outside the K highest entries count as 0."),
    ] = None,
    he_she: Annotated[
        bool, typer.Option("--he-she", help="The pronoun stands for the name of its gender too.")
    ] = False,
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples for intervals.")] = 1000,
    cells: Annotated[
        Cells, typer.Option(help="Subject by attribute: of the last checkpoint, or of all.")
    ] = "last",
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """UnQover: bias by subject and attribute, its intensity, and errors, by checkpoint."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.unqover(
        [filtered(bank, by) for bank in banks],
        prompts=prompts,
        models=model,
        topk=topk,
        he_she=he_she,
        bootstrap=bootstrap,
        cells=cells,
        out=out,
        paper=logitbank.Paper(width, style),
    )
    print_study(study, table=table, form=form)
