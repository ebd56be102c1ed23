"""The commands that say what banks hold, and make banks of banks."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.complete import bank_prompts
from logitbank.cli.options import BankFolder, BankPath, Format, StoredDtype, Table, pairs
from logitbank.wording import MADE_OF_STATES


def info(
    bank: BankPath,
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Who made what from what, equal values together.")
    ] = False,
    form: Format = "table",
) -> None:
    """Say what a bank holds and what is missing, one row a checkpoint and query set."""
    from logitbank.cli.screen.bank import print_bank, print_provenance
    from logitbank.cli.screen.progress import busy
    from logitbank.store.share.urls import url_of

    with busy(f"reading {url_of(bank) or bank}"):
        (print_provenance if provenance else print_bank)(logitbank.open(bank, models=[]), form)


def describe(
    bank: BankFolder,
    title: Annotated[str | None, typer.Option(help="Of the data.")] = None,
    licence: Annotated[
        str | None, typer.Option("--licence", "--license", help="Of the data, such as CC-BY-4.0.")
    ] = None,
    citation: Annotated[str | None, typer.Option(help="How to cite the data.")] = None,
) -> None:
    """Set the title, licence or citation of a bank; what is not named stays."""
    from logitbank.cli.screen.bank import print_about

    print_about(logitbank.describe(bank, title=title, licence=licence, citation=citation))


def merge(
    into: Annotated[
        Path, typer.Argument(help="Bank to write to; made if it is not there.", show_default=False)
    ],
    banks: Annotated[list[Path], typer.Argument(help="Banks to copy from.", show_default=False)],
) -> None:
    """Copy what other banks hold into one; what differs is an error, before anything is copied."""
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
        str | None, typer.Option(help=f"{MADE_OF_STATES}.", show_default="as it is")
    ] = None,
    dtype: Annotated[
        StoredDtype | None,
        typer.Option(help="float16, of float32 rows or states.", show_default="as it is"),
    ] = None,
) -> None:
    """Write a smaller version of a bank: fewer entries of each row, or fewer digits."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.bank import shrunk_line
    from logitbank.cli.screen.progress import count_progress

    with count_progress("shrinking") as progress:
        done = logitbank.shrink(bank, out, keep=keep, dtype=dtype, progress=progress)
    print_lines([shrunk_line(out, done)])


def rescore(bank: BankFolder) -> None:
    """Score options that prompts named after a bank was filled, from its rows or states."""
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
        typer.Option(help="MODEL=OTHER: a model of A, and that of B. Only these are compared."),
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Only this prompt set.", autocompletion=bank_prompts)
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Only these: START:STOP:STRIDE, a list, or release.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, help="Prompts with the largest difference in the table prompts.")
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
