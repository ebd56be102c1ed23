"""The command that downloads checkpoints and prompts for later."""

from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import prompt_set_names, suite_names


def fetch(
    suite: Annotated[
        str | None,
        typer.Option(help="Known suite, or owner/repo on the hub.", autocompletion=suite_names),
    ] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            help="Known prompt set, as for extract; repeatable.",
            autocompletion=prompt_set_names,
        ),
    ] = None,
    steps: Annotated[
        str, typer.Option(help="Training steps: all, log, START:STOP:STRIDE, a list, or release.")
    ] = "all",
) -> None:
    """Download checkpoints and prompts, to run extract later without a network."""
    from logitbank.cli.screen.fetched import print_fetched
    from logitbank.cli.screen.progress import byte_progress

    with byte_progress("fetching") as progress:
        done = logitbank.fetch(
            suite,
            prompts=prompts or (),
            steps=steps,
            progress=progress,
        )
    print_fetched(done, suite=suite, steps=steps)
    raise typer.Exit(0 if done.complete else 1)
