"""The commands that say what banks hold, and make banks of banks."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import BankFolder, BankPath, Format, Steps, StoredDtype, Table, pairs
from logitbank.wording import MADE_OF_STATES


def info(
    bank: BankPath,
    provenance: Annotated[
        bool,
        typer.Option("--provenance", help="Show how the results were made; equal values once."),
    ] = False,
    form: Format = "table",
) -> None:
    """Show the contents of a bank, one row per checkpoint and query set."""
    from logitbank.cli.screen.bank import print_bank, print_provenance
    from logitbank.cli.screen.progress import busy
    from logitbank.store.share.urls import url_of

    with busy(f"reading {url_of(bank) or bank}"):
        (print_provenance if provenance else print_bank)(logitbank.open(bank, models=[]), form)


def describe(
    bank: BankFolder,
    title: Annotated[str | None, typer.Option(help="Title of the data.")] = None,
    licence: Annotated[
        str | None,
        typer.Option("--licence", "--license", help="Licence of the data, such as CC-BY-4.0."),
    ] = None,
    citation: Annotated[str | None, typer.Option(help="How to cite the data.")] = None,
) -> None:
    """Set the title, licence or citation of a bank; unset fields stay."""
    from logitbank.cli.screen.bank import print_about

    print_about(logitbank.describe(bank, title=title, licence=licence, citation=citation))


def merge(
    into: Annotated[
        Path, typer.Argument(help="Bank to write to; created if missing.", show_default=False)
    ],
    banks: Annotated[list[Path], typer.Argument(help="Banks to copy from.", show_default=False)],
) -> None:
    """Merge banks into one. It fails before anything is copied if they conflict."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.bank import merged_line
    from logitbank.cli.screen.progress import byte_progress

    with byte_progress("copying") as progress:
        done = logitbank.merge(into, *banks, progress=progress)
    print_lines([merged_line(into, done)])


def shrink(
    bank: BankPath,
    out: Annotated[Path, typer.Argument(help="Bank to write.", show_default=False)],
    keep: Annotated[
        str | None, typer.Option(help=f"Storage level: {MADE_OF_STATES}.", show_default="as it is")
    ] = None,
    dtype: Annotated[
        StoredDtype | None,
        typer.Option(
            help="Stored dtype: float16 for float32 rows or states.", show_default="as it is"
        ),
    ] = None,
) -> None:
    """Write a smaller copy of a bank: fewer entries per row, or fewer digits."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.bank import shrunk_line
    from logitbank.cli.screen.progress import count_progress

    with count_progress("shrinking") as progress:
        done = logitbank.shrink(bank, out, keep=keep, dtype=dtype, progress=progress)
    print_lines([shrunk_line(out, done)])


def rescore(bank: BankFolder) -> None:
    """Score options that were added after the extraction, from stored rows or states."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.bank import rescored_line

    print_lines([rescored_line(logitbank.Bank.open(bank, prompts=[]).rescore())])


def compare(
    a: Annotated[Path, typer.Argument(help="Bank that is the reference.", show_default=False)],
    b: Annotated[
        Path | None,
        typer.Argument(help="Bank compared with it; A itself if left out.", show_default=False),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            help="MODEL=OTHER: a model of A and its counterpart in B; only these are compared."
        ),
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Only this prompt set.", autocompletion=bank_prompts)
    ] = None,
    steps: Steps = None,
    top: Annotated[
        int,
        typer.Option(
            min=0, help="Number of prompts with the largest difference, in the table prompts."
        ),
    ] = 10,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Compare two banks or models: logits, KL, ranks, metrics and prompts."""
    from logitbank.cli.output import print_study

    study = logitbank.compare(
        a, b, prompts=prompts, steps=steps, match=pairs("--match", match) or None, top=top
    )
    print_study(study, table=table, form=form)
