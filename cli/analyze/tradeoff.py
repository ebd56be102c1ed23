"""The command `analyze tradeoff`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import Format, FromStep, Models, Out, Style, Table, Width, once


def tradeoff(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Banks; result files and tables among them are performance.", show_default=False
        ),
    ] = None,
    performance: Annotated[
        list[Path] | None,
        typer.Option(
            help="Result files of lm-evaluation-harness, a folder of them, or a table with model, "
            "step, metric, value; else LAMBADA of the banks."
        ),
    ] = None,
    task: Annotated[str, typer.Option(help="Task in result files.")] = "lambada_openai",
    metric: Annotated[str, typer.Option(help="Metric, or column of a table.")] = "acc",
    gap: Annotated[
        str | None,
        typer.Option(
            help="fairness, stereotype, sa_gender or crows-pairs of the banks, or a column of "
            "--fairness-table.",
            show_default="fairness, or value",
        ),
    ] = None,
    fairness_table: Annotated[
        Path | None, typer.Option(help="Table with model, step and a gap, in place of a bank's.")
    ] = None,
    give_up: Annotated[
        list[float] | None, typer.Option(min=0, help="Largest loss of performance, in points.")
    ] = None,
    pair: Annotated[
        tuple[int, int] | None, typer.Option(help="Print the change between two steps.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=VALUE: rows of a table of performance to take."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(help="NAME=NAME: a model of the performance, and its name in the gap."),
    ] = None,
    lower_is_better: Annotated[
        bool, typer.Option("--lower-is-better", help="As for perplexities, which are known.")
    ] = False,
    prompts: Annotated[
        str, typer.Option(help="Prompt set of the fairness gap.", autocompletion=bank_prompts)
    ] = "winobias",
    model: Models = None,
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples for intervals.")] = 1000,
    from_step: FromStep = None,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Performance against fairness: Pareto front, fairest checkpoint, change between two."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.tradeoff(
        sources or [],
        performance=performance or [],
        task=task,
        metric=metric,
        gap=gap,
        fairness_table=fairness_table,
        where=_pairs(where or [], "--where"),
        rename=_pairs(rename or [], "--rename"),
        lower_is_better=lower_is_better,
        give_up=once("--give-up", give_up, None),
        pair=pair,
        prompts=prompts,
        models=model,
        bootstrap=bootstrap,
        from_step=from_step,
        out=out,
        paper=logitbank.Paper(width, style),
    )
    print_study(study, table=table, form=form)


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    from logitbank.errors import UsageError

    pairs = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise UsageError(f"{option} {text!r} is not of the form NAME=VALUE")
        pairs[key] = value
    return pairs
