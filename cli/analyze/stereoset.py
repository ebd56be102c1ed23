"""The command `analyze stereoset`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_models, bank_prompts
from logitbank.cli.options import FilterFile, Format, Out, Style, Table, Width, filtered


class Score(StrEnum):
    """How pieces become a score. Typer takes no list of a `Literal`, but of an enumeration."""

    reference = "reference"
    mean_prob = "mean_prob"
    sum_logprob = "sum_logprob"
    mean_logprob = "mean_logprob"
    geometric = "geometric"


def stereoset(
    banks: Annotated[
        list[Path] | None, typer.Argument(help="Banks, if any.", show_default=False)
    ] = None,
    predictions: Annotated[
        list[str] | None,
        typer.Option(help="Prediction file of a model named like it, or NAME=PATH; with --gold."),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="StereoSet's file with the labels, such as dev.json.")
    ] = None,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(help="Only these prompt sets of banks.", autocompletion=bank_prompts),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Only these models of banks.", autocompletion=bank_models),
    ] = None,
    step: Annotated[
        list[str] | None, typer.Option(help="Only these steps of banks; a number, or release.")
    ] = None,
    score: Annotated[
        list[Score], typer.Option(help="How pieces become a score; several side by side.")
    ] = [Score.reference],  # noqa: B006
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the target terms.")] = 1000,
    save_predictions: Annotated[
        Path | None,
        typer.Option(help="Write the scores of banks as prediction files: a .json, or a folder."),
    ] = None,
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """StereoSet's lms, ss and iCAT of banks and of prediction files, by domain and term."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.stereoset(
        [filtered(bank, by) for bank in banks or ()],
        predictions=predictions or (),
        gold=gold,
        prompts=prompts,
        models=model,
        steps=step,
        out=out,
        paper=logitbank.Paper(width, style),
        score=[rule.value for rule in score],
        bootstrap=bootstrap,
        save_predictions=save_predictions,
    )
    print_study(study, table=table, form=form)
