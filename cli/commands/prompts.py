"""The commands `prompts show` and `prompts check`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import prompt_set_names
from logitbank.cli.options import new_app

app = new_app("Show and check prompt sets.")

Prompts = Annotated[
    str,
    typer.Argument(
        help="A known set, such as winobias, or a prompt file.", autocompletion=prompt_set_names
    ),
]


@app.command()
def show(
    prompts: Prompts,
    top: Annotated[int, typer.Option(min=1, help="Number of prompts to show.")] = 3,
) -> None:
    """Print the first prompts of a set exactly as they would be scored."""
    from logitbank.cli.output import print_verbatim

    print_verbatim(logitbank.prompts_show(prompts, top=top))


@app.command()
def check(
    prompts: Prompts,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Checkpoint folder with the tokenizer for the check.")
    ] = None,
) -> None:
    """Check a prompt set for errors and likely mistakes."""
    from logitbank.cli.output import print_lines

    checked = logitbank.prompts_check(prompts, tokenizer=tokenizer)
    print_lines(checked.lines)
    raise typer.Exit(1 if checked.failed else 0)
