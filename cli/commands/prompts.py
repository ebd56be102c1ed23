"""The commands `prompts show` and `prompts check`."""

from pathlib import Path
from typing import Annotated

import typer

from logitbank.cli.complete import prompt_set_names
from logitbank.cli.layout import App
from logitbank.cli.options import Data, FirstToken, Instances, Orders, Splits, old_options

app = App(help="Show and check prompt sets.")


@app.command()
def show(
    prompts: Annotated[
        str,
        typer.Argument(
            help="A known set, such as winobias, or a prompt file.", autocompletion=prompt_set_names
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, help="Prompts to show.")] = 3,
    orders: Orders = None,
    splits: Splits = None,
    data: Data = None,
    instances: Instances = None,
) -> None:
    """Print the first prompts of a set exactly as they would be scored."""
    from logitbank.cli.screen.tables import print_verbatim
    from logitbank.engine.prompts.registry import prompt_set
    from logitbank.engine.prompts.shown import describe

    old = old_options(orders, splits, instances)
    print_verbatim(describe(prompt_set(prompts, data=data, old=old), limit=limit))


@app.command()
def check(
    prompts: Annotated[
        str,
        typer.Argument(
            help="A known set, such as winobias, or a prompt file.", autocompletion=prompt_set_names
        ),
    ],
    tokenizer: Annotated[
        Path | None, typer.Option(help="Checkpoint folder whose tokenizer to check with.")
    ] = None,
    orders: Orders = None,
    splits: Splits = None,
    data: Data = None,
    first_token: FirstToken = False,
    instances: Instances = None,
) -> None:
    """Say what stops a prompt set, and what its author may not have meant."""
    from logitbank.cli.screen.tables import print_lines
    from logitbank.engine.prompts.registry import prompt_set
    from logitbank.engine.prompts.shown import check as checked

    old = old_options(orders, splits, instances, first_token)
    lines, failed = checked(prompt_set(prompts, data=data, old=old), tokenizer)
    print_lines(lines)
    raise typer.Exit(1 if failed else 0)
