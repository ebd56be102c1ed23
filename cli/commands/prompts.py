"""The commands `prompts show` and `prompts check`."""

from pathlib import Path
from typing import Annotated

import typer

from logitbank.cli.complete import prompt_set_names
from logitbank.cli.layout import App
from logitbank.cli.options import Data, FirstToken, Instances, Orders, Splits, count_or_all

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
    orders: Orders = "5",
    splits: Splits = "dev,test",
    data: Data = None,
    instances: Instances = "10000",
) -> None:
    """Print the first prompts of a set exactly as they would be scored."""
    from logitbank.cli.screen.tables import print_verbatim
    from logitbank.engine.prompts.known.registry import prompt_set
    from logitbank.engine.prompts.shown import describe

    found = prompt_set(
        prompts,
        data=data,
        orders=count_or_all(orders, "--orders"),
        splits=splits.split(","),
        instances=count_or_all(instances, "--instances"),
    )
    print_verbatim(describe(found, limit=limit))


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
    orders: Orders = "5",
    splits: Splits = "dev,test",
    data: Data = None,
    first_token: FirstToken = False,
    instances: Instances = "10000",
) -> None:
    """Say what stops a prompt set, and what its author may not have meant."""
    from logitbank.cli.screen.tables import print_lines
    from logitbank.engine.prompts.known.registry import prompt_set
    from logitbank.engine.prompts.shown import check as checked

    found = prompt_set(
        prompts,
        data=data,
        orders=count_or_all(orders, "--orders"),
        splits=splits.split(","),
        first_token=first_token,
        instances=count_or_all(instances, "--instances"),
    )
    lines, failed = checked(found, tokenizer)
    print_lines(lines)
    raise typer.Exit(1 if failed else 0)
