"""The command `analyze fluctuation`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import (
    FilterFile,
    Format,
    Models,
    Out,
    Partial,
    Style,
    Table,
    Width,
    filtered,
)


def fluctuation(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Banks, and score tables in the published format (.csv, .parquet).",
            show_default=False,
        ),
    ],
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            help="Prompt set; else professions, or the only one with its columns.",
            autocompletion=bank_prompts,
        ),
    ] = None,
    model: Models = None,
    plateau: Annotated[
        list[int] | None,
        typer.Option(
            help="Step from which on to measure; several give results side by side. "
            "Else half of the last step."
        ),
    ] = None,
    frequencies: Annotated[
        Path | None,
        typer.Option(
            help="Table with occupation, case, year, frequency; or occupation, case, total."
        ),
    ] = None,
    corpus_sizes: Annotated[
        Path | None, typer.Option(help="Table with year, total_words, for yearly frequencies.")
    ] = None,
    profession: Annotated[
        list[str] | None, typer.Option(help="Show the trajectories of these professions.")
    ] = None,
    save_scores: Annotated[
        Path | None, typer.Option(help="Write the scores in the published format.")
    ] = None,
    partial: Partial = False,
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Pronoun ratios of masked models, their variation over a plateau, and correlations."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.fluctuation(
        [filtered(source, by) for source in sources],
        prompts=prompts,
        models=model,
        out=out,
        paper=logitbank.Paper(width, style),
        plateaus=plateau,
        frequencies=frequencies,
        corpus_sizes=corpus_sizes,
        professions=profession,
        save_scores=save_scores,
        partial=partial,
    )
    print_study(study, table=table, form=form)
