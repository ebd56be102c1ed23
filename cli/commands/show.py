"""The command `show`: single prompts and their probabilities through training."""

from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import BankPath, Format, Models
from logitbank.store.share.urls import url_of


def show(
    bank: BankPath,
    prompts: Annotated[
        str | None,
        typer.Option(
            help="Prompt set; needed where the bank has several.", autocompletion=bank_prompts
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Id of a prompt; else those that move most are listed.")
    ] = None,
    order: Annotated[
        int | None, typer.Option(help="Order seed of the prompt's options; else its first.")
    ] = None,
    model: Models = None,
    run: Annotated[list[str] | None, typer.Option(help="Only these runs.")] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="STEP STEP",
            help="List what differs most between two: step numbers, or release.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Prompts to list of each model; other formats have all.")
    ] = 10,
    top_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="K",
            help="What a model would say after the prompt: the K likeliest tokens.",
        ),
    ] = None,
    form: Format = "table",
) -> None:
    """Show a prompt and its probabilities through training, or the prompts that move most."""
    from logitbank.cli.screen.progress import busy
    from logitbank.cli.screen.shown import print_shown

    with busy(f"reading prompts of {url_of(bank) or bank}"):
        shown = logitbank.show(
            bank,
            prompts=prompts,
            prompt=prompt,
            order=order,
            models=model,
            runs=run,
            between=between,
            top_tokens=top_tokens,
        )
        print_shown(shown, form, bank=url_of(bank) or str(bank), top=top)
