"""The command `analyze fairness`."""

from typing import Annotated, Literal

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import (
    Banks,
    FilterFile,
    Format,
    FromStep,
    Models,
    Out,
    Style,
    Table,
    Width,
    filtered,
)

Unit = Literal["prompt", "prompt_order", "seed"]
Ties = Literal["competition", "midrank"]


def fairness(
    banks: Banks,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            help="Prompt set; else winobias, or the only one with its columns.",
            autocompletion=bank_prompts,
        ),
    ] = None,
    model: Models = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(help="Two models to compare on neutral prompts.")
    ] = None,
    change: Annotated[
        tuple[int, int] | None, typer.Option(help="Print the fairness change between two steps.")
    ] = None,
    vocab_limit: Annotated[
        bool, typer.Option("--vocab-limit", help="Rank among the tokenizer's entries only.")
    ] = False,
    ties: Annotated[Ties, typer.Option(help="How equal logits are ranked.")] = "competition",
    unit: Annotated[
        Unit, typer.Option(help="Observation of the tests; prompt_order is invalid for p values.")
    ] = "prompt",
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the sentences.")] = 1000,
    by: FilterFile = None,
    resample_occupations: Annotated[
        bool,
        typer.Option(
            "--resample-occupations",
            help="Resample occupations too; else intervals hold for these occupations.",
        ),
    ] = False,
    from_step: FromStep = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Average Rank, accuracy, JSD by parts, the gap, and their tests, by checkpoint."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.fairness(
        [filtered(bank, by) for bank in banks],
        prompts=prompts,
        models=model,
        out=out,
        paper=logitbank.Paper(width, style),
        vocab_limit=vocab_limit,
        ties=ties,
        unit=unit,
        bootstrap=bootstrap,
        resample_occupations=resample_occupations,
        from_step=from_step,
        compare=compare,
        change=change,
    )
    print_study(study, table=table, form=form)
