"""The commands that send a bank to where others read it, and fetch one from there."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import BankFolder, Models, PromptSets, Steps


def push(
    bank: BankFolder,
    target: Annotated[
        str,
        typer.Argument(
            help="s3://bucket/prefix, hf://datasets/owner/name, or a folder.", show_default=False
        ),
    ],
    model: Models = None,
    steps: Steps = None,
    prompts: PromptSets = None,
) -> None:
    """Publish a bank, or its new results, at a URL. Run it again to resume."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.progress import byte_progress

    with byte_progress("pushing") as progress:
        done = logitbank.push(
            bank,
            target,
            models=model,
            steps=steps,
            prompts=prompts,
            progress=progress,
        )
    print_lines([f"{done} → {target}"])


def pull(
    url: Annotated[
        str,
        typer.Argument(
            help="https://…, s3://bucket/prefix or hf://datasets/owner/name.", show_default=False
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="New folder, or a bank.", show_default=False)],
    model: Models = None,
    steps: Steps = None,
    prompts: PromptSets = None,
) -> None:
    """Copy a bank from a URL, or its missing parts. Run it again to resume."""
    from logitbank.cli.output import err, one_line, print_lines
    from logitbank.cli.screen.progress import byte_progress
    from logitbank.store.care.lost import missing_tables

    with byte_progress("pulling") as progress:
        done = logitbank.pull(
            url,
            folder,
            models=model,
            steps=steps,
            prompts=prompts,
            progress=progress,
        )
    print_lines([f"{done} → {folder}"])
    for table, why in missing_tables(folder, logitbank.open(folder).deposits()).items():
        err.print(f"{one_line(folder)}/{one_line(table)} is missing ({why}).", soft_wrap=True)
