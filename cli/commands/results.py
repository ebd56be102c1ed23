"""The commands that read results: `report`, `show`, `query`, `export` and `compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

import logitbank
from logitbank.cli.options import (
    BankPath,
    Banks,
    Format,
    Models,
    PromptSet,
    PromptSets,
    Steps,
    Table,
    address,
    pairs,
)


def report(
    banks: Banks,
    out: Annotated[
        Path | None,
        typer.Option(
            help="HTML file to write; by default the banks' names with .html.", show_default=False
        ),
    ] = None,
    prompts: PromptSets = None,
    model: Models = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Number of bootstrap resamples; 0 for no intervals.")
    ] = 1000,
) -> None:
    """Write all analyses of banks as one self-contained HTML page."""
    from logitbank.cli.output import exit_with
    from logitbank.cli.screen.report import print_report

    def write(**shown: Any) -> Path:
        return logitbank.report(
            banks, out, prompts=prompts, models=model, bootstrap=bootstrap, **shown
        )

    exit_with(print_report(banks, write))


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
    run: Annotated[list[str] | None, typer.Option(help="Runs to include; repeatable.")] = None,
    steps: Steps = None,
    top: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of prompts per model in the printed table; csv, json and other formats"
            " list all.",
        ),
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
    from logitbank.cli.screen.show import print_shown

    with busy(f"reading prompts of {address(bank)}"):
        shown = logitbank.show(
            bank,
            prompts=prompts,
            prompt=prompt,
            order=order,
            models=model,
            runs=run,
            steps=steps,
            top_tokens=top_tokens,
        )
        print_shown(shown, form, bank=address(bank), top=top)


def query(
    bank: BankPath,
    sql: Annotated[
        str, typer.Argument(help="SELECT over checkpoints, prompts, options and scores.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File for the result: .csv, .parquet or .jsonl.", show_default=False),
    ] = None,
    form: Format = "table",
) -> None:
    """Query a bank in SQL."""
    from logitbank.cli.output import print_query, say

    result = logitbank.query(bank, sql, out=out)
    if out is None:
        print_query(result, form)
    else:
        say(f"Result: {out}")


def export(
    bank: BankPath,
    out: Annotated[
        Path,
        typer.Argument(help="New file: .csv, .parquet or .jsonl.", show_default=False),
    ],
    prompts: PromptSet = None,
    text: Annotated[
        bool, typer.Option("--text", help="The text of its prompt in each row.")
    ] = False,
) -> None:
    """Write the scores of a prompt set as one tidy file, one row per option."""
    from logitbank.cli.output import say

    say(f"Scores: {logitbank.export(bank, out, prompts=prompts, text=text)}")


def compare(
    a: Annotated[Path, typer.Argument(help="Bank that is the reference.", show_default=False)],
    b: Annotated[
        Path | None,
        typer.Argument(help="Bank to compare with A; by default A itself.", show_default=False),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(help="Model or run of A and its counterpart in B, as NAME=OTHER; repeatable."),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Prompt set to compare; by default all."),
    ] = None,
    steps: Steps = None,
    top: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of prompts in the table `prompts`: those with the largest difference at"
            " the last checkpoint.",
        ),
    ] = 10,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Compare two banks, models or runs: logits, KL, ranks, metrics and prompts."""
    from logitbank.analysis.comparison.metrics import Comparison
    from logitbank.analysis.results.tables import table_names
    from logitbank.cli.output import print_study, require_table

    require_table(table, form, [*table_names(Comparison), "runs"])
    study = logitbank.compare(
        a, b, prompts=prompts, steps=steps, match=pairs("--match", match) or None, top=top
    )
    print_study(study, table=table, form=form)
