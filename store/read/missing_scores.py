"""Options that prompts name and full rows hold, but no scores: told, and not left out."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

import polars as pl

from logitbank.errors import BankError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.schema import OptionTokens
from logitbank.store.read.together import DEPOSIT, option_scores
from logitbank.store.remote import mirror
from logitbank.store.tables import prompt_tables


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


def lacking_options(root: Path, deposits: Iterable[Deposit]) -> list[Deposit]:
    """Those with full rows whose scores lack a token of `missing_options`."""
    full = [deposit for deposit in deposits if deposit.layout.keep.whole_rows]
    complete = _list_all(root, full) if full else []
    return [
        deposit
        for deposit, is_complete in zip(full, complete, strict=True)
        if not is_complete and missing_options(root, deposit) is not None
    ]


def missing_options(root: Path, deposit: Deposit) -> OptionTokens | None:
    """Tokens that prompts name for committed queries of a deposit and its scores do not list."""
    layout = deposit.layout
    listed = deposit.scores().filter(pl.col("kind") == "option").select("query", "token")
    pairs = (
        prompt_tables.named_tokens(root, deposit.query_set)
        .lazy()
        .filter(_in_blocks(layout.block_rows, deposit.committed()))
        .join(listed, left_on=["row", "token"], right_on=["query", "token"], how="anti")
        .sort("row", "token")
        .collect()
    )
    return None if pairs.is_empty() else prompt_tables.option_tokens(pairs, queries=layout.queries)


def _missing_counts(root: Path, prompts: pl.LazyFrame, full: Sequence[Deposit]) -> list[int]:
    """How many scores of these prompts' options each deposit lacks of its committed rows."""
    wanted = {
        name: prompts.filter(pl.col("query_set") == name)
        .select("row", "token")
        .drop_nulls()
        .unique()
        for name in {deposit.query_set for deposit in full}
    }
    counts_missing = []
    for deposit, is_complete in zip(full, _list_all(root, full), strict=True):
        if is_complete:
            counts_missing.append(0)
            continue
        in_blocks = _in_blocks(deposit.layout.block_rows, deposit.committed())
        pairs = wanted[deposit.query_set].filter(in_blocks)
        absent = pairs.join(
            deposit.option_scores(),
            left_on=["row", "token"],
            right_on=["query", "token"],
            how="anti",
        )
        counts_missing.append(absent.select(pl.len()).collect().item())
    return counts_missing


def _list_all(root: Path, deposits: Sequence[Deposit]) -> list[bool]:
    """Whether each deposit lists everything that any prompt names for its committed queries.

    By counts, which are read in a tenth of the time that the tokens take: of what was named only
    some is listed, or as much, where all is.
    """
    named = {
        name: prompt_tables.named_tokens(root, name) for name in {d.query_set for d in deposits}
    }

    @cache
    def named_in(name: str, block_rows: int, blocks: frozenset[int]) -> int:
        return len(named[name].filter(_in_blocks(block_rows, blocks)))

    counts = dict(option_scores(deposits).group_by(DEPOSIT).len().collect().iter_rows())
    return [
        counts.get(at, 0) == named_in(d.query_set, d.layout.block_rows, d.committed())
        for at, d in enumerate(deposits)
    ]


def _in_blocks(block_rows: int, blocks: Collection[int]) -> pl.Expr:
    of_row = pl.col("row") // block_rows
    return of_row.is_in(pl.Series(sorted(blocks), dtype=pl.Int32).implode())
