"""What a bank says of itself, for people."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from logitbank.cli.output import clean, print_frame, print_lines, print_table, say
from logitbank.store.format.about import own_fields, sources_of
from logitbank.store.read.provenance import provenance_document
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.store import Bank, Deposit, Merged, Shrunk

_MANY = 4
"""Values of a field that are printed; of more, their number."""


def print_bank(bank: "Bank", form: str) -> None:
    if form == "table":
        print_about(bank)
    info = bank.info()
    print_frame(info, form)
    if info.is_empty():
        say(f"{clean(bank.path)} has no checkpoint yet; run `logitbank extract`")


def print_about(bank: "Bank") -> None:
    """Title, licence and citation, and those of the banks that it was made of."""
    about = own_fields(bank.attributes)
    print_lines(f"{name}: {value}" for name, value in about.items() if value)
    for source in sources_of(bank.attributes):
        texts = "; ".join(source[name] for name in about if source[name])
        print_lines([f"from: {texts} ({', '.join(source['models'])})"])


def print_provenance(bank: "Bank", form: str) -> None:
    """Equal values together; as JSON, everything by deposit."""
    if form == "json":
        json.dump(
            provenance_document(bank.path, bank.attributes, bank.deposits()),
            sys.stdout,
            default=str,
            indent=1,
        )
        sys.stdout.write("\n")
        return
    table = bank.provenance()
    if form == "table":
        print_about(bank)
        about = provenance_document(bank.path, bank.attributes, bank.deposits())
        for name, query_set in about["query_sets"].items():
            queries = counted(query_set["queries"], "query", "queries")
            print_lines([f"{name}: {queries}, tokenizer {query_set['tokenizer']}"])
        print_lines(f"prompts: {name}" for name in about["prompts"])
        print_table(_brief(table), limit=len(table) + 1)
    else:
        print_frame(table, form)


def _brief(table: pl.DataFrame) -> pl.DataFrame:
    """Fields with many values, such as digests of weights, as one row."""
    keys = ["model", "run", "field"]
    many = table.filter(pl.len().over(keys) > _MANY)
    together = many.group_by(keys, maintain_order=True).agg(
        value=pl.len().cast(pl.String) + " different values; --format csv prints them",
        deposits=pl.col("deposits").sum(),
        first_step=pl.col("first_step").min(),
        last_step=pl.col("last_step").max(),
    )
    return pl.concat([table.filter(pl.len().over(keys) <= _MANY), together])


def merged_line(into: Path, done: "Merged") -> str:

    from logitbank.store import Bank

    if not (done.deposits or done.tables):
        if done.bytes:
            copied = counted(done.bytes, "byte")
            return f"{into} has all deposits already; {copied} copied of heads that it lacked"
        return f"{into} has all of it already"
    kept = Bank.open(into).info()["keep"].unique().sort()
    return (
        f"{into}: {counted(done.deposits, 'deposit')} and {counted(done.tables, 'table')} added,"
        f" {counted(done.bytes, 'byte')} copied; it keeps {' and '.join(kept) or 'no deposit'}"
    )


def rescored_line(deposits: "Sequence[Deposit]") -> str:
    if not deposits:
        return (
            "nothing to score: every option is listed, or its deposit keeps neither full rows nor"
            " states"
        )
    return f"scored new options of {counted(len(deposits), 'deposit')}"


def shrunk_line(out: Path, done: "Shrunk") -> str:
    return (
        f"{out}: {counted(done.deposits, 'deposit')}, {done.bytes_before:,} bytes became"
        f" {done.bytes_after:,}"
    )
