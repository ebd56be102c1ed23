"""The command `show`: single prompts and their probabilities through training."""

from typing import TYPE_CHECKING, Annotated

import typer

from logitbank.cli.options import BankPath, Form, Format, Models

if TYPE_CHECKING:
    from logitbank.analysis.prompts.lookup import PromptView
    from logitbank.store import Readable


def show(
    bank: BankPath,
    prompts: Annotated[
        str | None, typer.Option(help="Prompt set; needed where the bank has several.")
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
        int, typer.Option(min=1, help="Prompts to list of each model; csv and json have all.")
    ] = 10,
    form: Format = "table",
) -> None:
    """Show a prompt and its probabilities through training, or the prompts that move most."""
    from logitbank.errors import UsageError
    from logitbank.store.filter.view import open_bank

    opened = open_bank(bank)
    if prompt is None:
        if order is not None:
            raise UsageError(f"--order {order} is of one prompt; name that with --prompt")
        _list(opened, str(bank), prompts, model, run, between=between, top=top, form=form)
        return
    if between is not None:
        raise UsageError("--between lists prompts; leave it out, or --prompt")
    from logitbank.analysis.prompts.lookup import prompt_view

    _print_view(
        prompt_view(opened, prompt, prompts=prompts, order=order, models=model, runs=run), form
    )


def _print_view(view: "PromptView", form: Form) -> None:
    import polars as pl

    from logitbank.analysis.prompts.lookup import of_order
    from logitbank.analysis.prompts.view import prompt_rows
    from logitbank.cli.screen.prompt import about_prompt, say, through_training
    from logitbank.cli.screen.tables import print_frame

    if form != "table":
        print_frame(pl.concat(map(prompt_rows, view.scores)), form)
        return
    order = view.scores[0].prompts["order_seed"][0]
    shown = [chosen for scores in view.scores if (chosen := of_order(scores, order)) is not None]
    say(about_prompt(view, shown[0]))
    for scores in shown:
        say(through_training(scores))


def _list(
    bank: "Readable",
    path: str,
    prompts: str | None,
    models: list[str] | None,
    runs: list[str] | None,
    *,
    between: tuple[str, str] | None,
    top: int,
    form: Form,
) -> None:
    import polars as pl

    from logitbank.analysis.frames.sources import step_given
    from logitbank.analysis.prompts.lookup import chosen_set
    from logitbank.analysis.prompts.view import changes, step_name
    from logitbank.cli.screen.prompt import command, listed, one_line, say
    from logitbank.cli.screen.tables import print_frame

    steps = None
    if between is not None:
        steps = step_given(between[0], "--between"), step_given(between[1], "--between")
    name = chosen_set(bank, prompts)
    moved = changes(bank, name, between=steps, models=models, runs=runs)
    if form != "table":
        print_frame(pl.concat(table for _, table in moved), form)
        return
    what = "move most" if steps is None else f"differ most, {' → '.join(map(step_name, steps))}"
    say([f"{one_line(name)}: the prompts that {what}"])
    first: dict[str, object] | None = None
    for scores, table in moved:
        say(listed(scores, table, top=top))
        if first is None and len(table):
            first = table.row(0, named=True)
    if first is not None:
        say(["", command(path, name, first)])
