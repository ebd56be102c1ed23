"""The command `report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import BankPath, FilterFile, Models, filtered
from logitbank.store.share.urls import url_of

if TYPE_CHECKING:
    from logitbank.analysis.results.words import Summary


def report(
    bank: BankPath,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; else the bank's name with .html, here.", show_default=False
        ),
    ] = None,
    prompts: Annotated[
        list[str] | None, typer.Option(help="Only these prompt sets.", autocompletion=bank_prompts)
    ] = None,
    model: Models = None,
    by: FilterFile = None,
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples for intervals.")] = 1000,
) -> None:
    """Write one HTML page with all that a bank allows; any browser opens it, without a network."""
    from logitbank.cli.screen.findings import print_findings
    from logitbank.cli.screen.progress import busy, count_progress
    from logitbank.cli.screen.tables import clean, err, one_line

    findings: dict[str, Summary] = {}
    damaged: dict[str, str] = {}
    with busy(f"reading {url_of(bank) or bank}"), count_progress(transient=True) as progress:
        path = logitbank.report(
            filtered(bank, by),
            out,
            prompts=prompts,
            models=model,
            bootstrap=bootstrap,
            progress=progress.about,
            found=findings.__setitem__,
            damaged=damaged.__setitem__,
        )
    print_findings({title: each for title, each in findings.items() if title not in damaged})
    for title, problem in damaged.items():
        err.print(f"{one_line(title)}: {one_line(problem)}", soft_wrap=True)
    err.print(f"Report: {clean(path)} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    if damaged:
        err.print("The bank is damaged, and the page lacks these; run `logitbank verify` on it.")
        raise typer.Exit(1)
