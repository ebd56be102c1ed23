"""The command `report`."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import Banks, FilterFile, Models, PromptSets, filtered


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
    by: FilterFile = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Number of bootstrap resamples; 0 for no intervals.")
    ] = 1000,
) -> None:
    """Write one HTML page with all analyses of banks. Any browser opens it, without a network."""
    from logitbank.analysis.report.sections import FINDINGS, Section
    from logitbank.cli.output import clean, err, exit_with, one_line, print_findings, say
    from logitbank.cli.output import out as stdout
    from logitbank.cli.screen.progress import busy, count_progress

    sections: list[Section] = []
    names = ", ".join(map(str, banks))
    with busy(f"reading {names}"), count_progress(transient=True) as progress:
        path = logitbank.report(
            [filtered(bank, by) for bank in banks],
            out,
            prompts=prompts,
            models=model,
            bootstrap=bootstrap,
            progress=progress.about,
            found=sections.append,
        )
    for section in sections:
        if section.study is not None:
            say(f"[bold]{one_line(section.title)}[/bold]", to=stdout)
            print_findings(section.study, most=FINDINGS)
    err.print(f"Report: {clean(path)} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    exit_with({section.title: section.problem for section in sections if section.problem})
