"""The command `export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import BankPath, Models


def export(
    bank: BankPath,
    out: Annotated[Path, typer.Argument(help="New folder for the files.", show_default=False)],
    to: Annotated[
        Literal["parquet", "trl", "distillkit"], typer.Option(help="Who is to read the files.")
    ] = "parquet",
    prompts: Annotated[
        str | None, typer.Option(help="Only this prompt set.", autocompletion=bank_prompts)
    ] = None,
    model: Models = None,
    run: Annotated[list[str] | None, typer.Option("--run", help="Only these runs.")] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            help="all, log, START:END:STRIDE, a list, or release.", show_default="the last"
        ),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Highest entries of each row.")] = 64,
    tail: Annotated[
        int, typer.Option(min=0, help="Draws from the rest of each row, of full rows.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
) -> None:
    """Write top log-probabilities and a sample of the rest, to train another model on them."""
    from logitbank.cli.screen.progress import count_progress
    from logitbank.cli.screen.tables import print_lines

    with count_progress("exporting") as progress:
        done = logitbank.export(
            bank,
            out,
            to=to,
            prompts=prompts,
            models=model,
            runs=run,
            steps=steps,
            top_k=top_k,
            tail=tail,
            seed=seed,
            progress=progress,
        )
    print_lines([f"{done} → {out}"])
