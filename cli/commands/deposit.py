"""The command `deposit`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.wording import KEPT_OF_LOGITS


def deposit(
    bank: Annotated[
        Path,
        typer.Argument(help="Folder of the bank; made if it is not there.", show_default=False),
    ],
    sources: Annotated[
        list[Path], typer.Argument(help="Files of results of other tools.", show_default=False)
    ],
    model: Annotated[
        str | None, typer.Option(help="Name of the model.", show_default="as the files name it")
    ] = None,
    run: Annotated[str, typer.Option(help="Name of the run.")] = "main",
    step: Annotated[
        int | None,
        typer.Option(min=0, help="Training step.", show_default="as the files name it"),
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Name of the prompt set.", show_default="the task's")
    ] = None,
    keep: Annotated[str, typer.Option(help=f"Of rows: {KEPT_OF_LOGITS}.")] = "full",
    chunks: Annotated[
        int | None,
        typer.Option(min=1, help="Only the first so many of a .kld file.", show_default="all"),
    ] = None,
    bos: Annotated[
        int | None,
        typer.Option(min=0, help="Begin-of-text token of the chunks of a .kld file."),
    ] = None,
) -> None:
    """Take results of lm-evaluation-harness, olmes, inspect_ai and llama.cpp into a bank."""
    from logitbank.cli.screen.tables import print_lines

    done = logitbank.deposit(
        bank,
        sources,
        model=model,
        run=run,
        step=step,
        prompts=prompts,
        keep=keep,
        chunks=chunks,
        bos=bos,
    )
    print_lines(str(each) for each in done)
