"""Options that prompts name and full rows hold, but no scores: told, and not left out."""

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import polars as pl

from logitbank.errors import BankError
from logitbank.store.deposits import tables
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.sealed_scores import check_scores
from logitbank.store.format.schema import OptionTokens
from logitbank.store.remote import mirror


def require_scored(
    root: Path, name: str, prompts: pl.LazyFrame, deposits: Sequence[Deposit]
) -> None:
    """Refuse to answer about prompts of which some deposit with full rows lacks an option's scores.

    They were named after it was made, and `Bank.rescore` reads them from its rows. Deposits that
    keep less cannot be helped, and are not looked at.

    Raises
    ------
    BankError
        Says how many scores are lacking, of which deposits, and what to run.
    """
    full = [deposit for deposit in deposits if deposit.layout.keep.whole_rows]
    counts = _missing_counts(root, prompts, full) if full else []
    incomplete = [(deposit, count) for deposit, count in zip(full, counts, strict=True) if count]
    if not incomplete:
        return
    more = f" and {len(incomplete) - 1} more" if len(incomplete) > 1 else ""
    copy = mirror.mirror_of(root)
    first = f"`logitbank pull {copy.url} FOLDER`, then " if copy else ""
    raise BankError(
        f"{incomplete[0][0]}{more} lack{'' if more else 's'} scores of"
        f" {sum(count for _, count in incomplete):,} options that prompt set {name!r} named later;"
        f" run {first}`logitbank rescore {'FOLDER' if copy else root}`, which reads them from full"
        " rows"
    )


def missing_options(root: Path, deposit: Deposit) -> OptionTokens | None:
    """Tokens that prompts name for committed queries of a deposit and its scores do not list."""
    layout = deposit.layout
    listed = deposit.scores().filter(pl.col("kind") == "option").select("query", "token")
    pairs = (
        tables.named_tokens(root, deposit.query_set)
        .lazy()
        .filter(_in_blocks(layout.block_rows, deposit.committed()))
        .join(listed, left_on=["row", "token"], right_on=["query", "token"], how="anti")
        .sort("row", "token")
        .collect()
    )
    return None if pairs.is_empty() else tables.option_tokens(pairs, queries=layout.queries)


def _missing_counts(root: Path, prompts: pl.LazyFrame, full: Sequence[Deposit]) -> list[int]:
    """How many scores of these prompts' options each deposit lacks of its committed rows."""
    # What prompts name is read once a query set, and footers of scores all at once: of ten
    # checkpoints, one after the other took half of the time of a scan.
    named = {name: tables.named_tokens(root, name) for name in {d.query_set for d in full}}
    checked = check_scores(full)
    listed = [d.option_scores(checked=checked).select("query", "token") for d in full]

    @cache
    def named_in(name: str, block_rows: int, blocks: frozenset[int]) -> int:
        return len(named[name].filter(_in_blocks(block_rows, blocks)))

    # Counts first, which are read in a tenth of the time: of what was named only some is listed,
    # or as much, where all is.
    counts = [frame["len"][0] for frame in pl.collect_all([one.select(pl.len()) for one in listed])]
    wanted = {
        name: prompts.filter(pl.col("query_set") == name)
        .select("row", "token")
        .drop_nulls()
        .unique()
        for name in named
    }
    counts_missing = []
    for deposit, options, count in zip(full, listed, counts, strict=True):
        block_rows, blocks = deposit.layout.block_rows, frozenset(deposit.committed())
        if count == named_in(deposit.query_set, block_rows, blocks):
            counts_missing.append(0)
            continue
        pairs = wanted[deposit.query_set].filter(_in_blocks(block_rows, blocks))
        absent = pairs.join(
            options, left_on=["row", "token"], right_on=["query", "token"], how="anti"
        )
        counts_missing.append(absent.select(pl.len()).collect().item())
    return counts_missing


def _in_blocks(block_rows: int, blocks: Collection[int]) -> pl.Expr:
    of_row = pl.col("row") // block_rows
    return of_row.is_in(pl.Series(sorted(blocks), dtype=pl.Int32).implode())
