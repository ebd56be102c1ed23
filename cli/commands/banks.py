"""The commands about whole banks: describe, check, copy and combine them."""

from pathlib import Path
from typing import Annotated

import typer

import logitbank
from logitbank.cli.options import (
    BankFolder,
    BankPath,
    Format,
    Models,
    PromptSets,
    Steps,
    StoredDtype,
    address,
)
from logitbank.store.share.urls import shown_url
from logitbank.wording import counted


def info(
    bank: BankPath,
    provenance: Annotated[
        bool,
        typer.Option("--provenance", help="Provenance of the results instead of their list."),
    ] = False,
    checkpoints: Annotated[
        bool,
        typer.Option("--checkpoints", help="Every checkpoint, with its sets of contexts."),
    ] = False,
    form: Format = "table",
) -> None:
    """Show the contents of a bank, one row per model and run."""
    from logitbank.cli.screen.bank import print_bank, print_provenance
    from logitbank.cli.screen.progress import busy

    with busy(f"reading {address(bank)}"):
        opened = logitbank.open(bank, prompts=[])
        if provenance:
            print_provenance(opened, form)
        else:
            print_bank(opened, form, checkpoints=checkpoints)


def describe(
    bank: BankFolder,
    title: Annotated[str | None, typer.Option(help="Title of the data.")] = None,
    license: Annotated[
        str | None,
        typer.Option("--license", help="License of the data, such as CC-BY-4.0."),
    ] = None,
    citation: Annotated[str | None, typer.Option(help="Citation of the data.")] = None,
) -> None:
    """Set the title, license or citation of a bank. Other fields are unchanged."""
    from logitbank.cli.screen.bank import print_about

    print_about(logitbank.describe(bank, title=title, license=license, citation=citation))


def verify(
    bank: BankPath,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Repair: remove damaged deposits, so that extract makes them again."
        ),
    ] = False,
    digest: Annotated[
        str | None,
        typer.Option(help="Published digest to compare the bank with.", show_default=False),
    ] = None,
) -> None:
    """Check every digest of a bank, and list what is damaged or missing."""
    from logitbank.cli.screen.bank import (
        print_damage,
        print_digest,
        print_incomplete,
        print_remote,
        print_repaired,
    )
    from logitbank.cli.screen.progress import busy, byte_progress
    from logitbank.store import repair as repair_bank
    from logitbank.store.care.verify import verify_documents

    if shown_url(bank) and not repair:
        with busy(f"reading {address(bank)}"):
            opened = logitbank.open(bank, prompts=[])
            damage = verify_documents(opened)
        print_remote(opened, damage)
    else:
        opened = logitbank.Bank.open(bank, prompts=[])
        with byte_progress("verifying") as progress:
            damage = logitbank.verify(opened, progress=progress)
        print_damage(opened, damage, repair=repair)
    if damage and repair:
        done = repair_bank(opened, damage)
        with byte_progress("verifying again") as progress:
            damage = logitbank.verify(opened, progress=progress)
        print_repaired(bank, done, damage)
    if not damage:
        print_incomplete(opened)
    is_same = digest is None or print_digest(opened, digest)
    raise typer.Exit(0 if is_same and not damage else 1)


def merge(
    into: Annotated[
        Path, typer.Argument(help="Bank to write to; created if missing.", show_default=False)
    ],
    banks: Annotated[list[Path], typer.Argument(help="Banks to copy from.", show_default=False)],
) -> None:
    """Merge banks into one. It fails before anything is copied if they conflict."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.progress import byte_progress

    with byte_progress("copying") as progress:
        done = logitbank.merge(into, *banks, progress=progress)
    print_lines([
        f"{into}: {counted(done.deposits, 'deposit')} and {counted(done.tables, 'table')} added,"
        f" {counted(done.bytes, 'byte')} copied."
        + (f" {counted(done.incomplete, 'incomplete deposit')} left out." * (done.incomplete > 0))
    ])  # fmt: skip


def shrink(
    bank: BankPath,
    out: Annotated[Path, typer.Argument(help="Bank to write.", show_default=False)],
    keep: Annotated[
        str | None,
        typer.Option(
            help="Storage level: topk:K or options. For stored hidden states also full (rows are"
            " computed; larger files, no LM head).",
            show_default="unchanged",
        ),
    ] = None,
    dtype: Annotated[
        StoredDtype | None,
        typer.Option(help="Stored dtype: float16 for float32 values.", show_default="unchanged"),
    ] = None,
) -> None:
    """Write a smaller copy of a bank: fewer entries per row, or a smaller dtype."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.progress import count_progress

    with count_progress("shrinking") as progress:
        done = logitbank.shrink(bank, out, keep=keep, dtype=dtype, progress=progress)
    print_lines([
        f"{out}: {counted(done.deposits, 'deposit')}, reduced from {done.bytes_before:,} to"
        f" {done.bytes_after:,} bytes."
        + (f" {counted(done.incomplete, 'incomplete deposit')} left out." * (done.incomplete > 0))
    ])  # fmt: skip


def push(
    bank: BankPath,
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
    from logitbank.cli.output import print_lines, say
    from logitbank.cli.screen.progress import byte_progress

    with byte_progress("pushing") as progress:
        done = logitbank.push(
            bank, target, models=model, steps=steps, prompts=prompts, progress=progress
        )
    print_lines([f"{done} → {address(Path(target))}", f"Digest of the bank: {done.digest}"])
    if not done.has_license:
        say(
            "No license is stored, so readers do not know whether they may use the data. Set one"
            f" with `logitbank describe {address(Path(bank))} --license …` and push again."
        )


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
    from logitbank.cli.output import one_line, print_lines, say
    from logitbank.cli.screen.progress import byte_progress
    from logitbank.store.care.lost import missing_tables

    with byte_progress("pulling") as progress:
        done = logitbank.pull(
            url, folder, models=model, steps=steps, prompts=prompts, progress=progress
        )
    print_lines([f"{done} → {folder}"])
    for table, reason in missing_tables(folder, logitbank.open(folder).deposits()).items():
        say(one_line(f"{folder}/{table} is missing ({reason})."))
