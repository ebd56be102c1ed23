"""The command `show`: single prompts and their probabilities through training."""

from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import BankPath, Format, Models, PromptSet
from logitbank.store.share.urls import url_of


def show(
    bank: BankPath,
    prompts: PromptSet = None,
    prompt: Annotated[
        str | None,
        typer.Option(help="Prompt id; by default the prompts with the largest change are listed."),
    ] = None,
    order: Annotated[
        int | None, typer.Option(help="Option order of the prompt; by default its first.")
    ] = None,
    model: Models = None,
    run: Annotated[list[str] | None, typer.Option(help="Only these runs.")] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="STEP STEP",
            help="Two steps whose differences are listed: numbers, or release.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Number of prompts listed per model; other formats have all.")
    ] = 10,
    top_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="K",
            help="Number of most probable tokens after the prompt.",
        ),
    ] = None,
    form: Format = "table",
) -> None:
    """Show a prompt through training, or the prompts with the largest change."""
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
