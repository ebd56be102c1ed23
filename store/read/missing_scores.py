"""Options that prompts name and scores do not list."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import BankError, DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import DEPOSIT
from logitbank.store.files import copies
from logitbank.store.format.schema import OptionTokens
from logitbank.store.read.scan_files import option_scores
from logitbank.store.tables import prompt_tables


def require_scored(
    root: Path, name: str, prompts: pl.LazyFrame, deposits: Sequence[Deposit]
) -> None:
    """Refuse deposits with full rows without scores of options of these prompts.

    The options were named after the deposit was made, and `Bank.rescore` scores them. Deposits that
    keep less cannot be completed, and are ignored. Raises BankError.
    """
    full = [deposit for deposit in deposits if deposit.layout.keep.whole_rows]
    counts = [(deposit, _counts(prompts, deposit).missing) for deposit in _incomplete(root, full)]
    incomplete = [(deposit, missing) for deposit, missing in counts if missing]
    if not incomplete:
        return
    more = f" and {len(incomplete) - 1} more" if len(incomplete) > 1 else ""
    url = copies.url_of_copy(root)
    first = f"`logitbank pull {url} FOLDER`, then " if url else ""
    raise BankError(
        f"{incomplete[0][0]}{more} lack{'' if more else 's'} scores of"
        f" {sum(count for _, count in incomplete):,} options that prompt set {name!r} named later;"
        f" run {first}`logitbank rescore {'FOLDER' if url else root}`, which reads them from full"
        " rows"
    )


def have_no_score(root: Path, prompts: pl.LazyFrame, deposits: Sequence[Deposit]) -> list[bool]:
    """Which deposits keep no full rows and list none of the options named for their rows.

    These options were named later, and nothing that the deposit keeps gives their scores.
    """
    less = [deposit for deposit in deposits if not deposit.layout.keep.whole_rows]
    counts = [(deposit, _counts(prompts, deposit)) for deposit in _incomplete(root, less)]
    without = {deposit for deposit, of in counts if 0 < of.named == of.missing}
    return [deposit in without for deposit in deposits]


def with_missing_options(root: Path, deposits: Iterable[Deposit]) -> list[Deposit]:
    """Deposits with full rows and `missing_options`."""
    full = [deposit for deposit in deposits if deposit.layout.keep.whole_rows]
    complete = _list_all(root, full) if full else []
    return [
        deposit
        for deposit, is_complete in zip(full, complete, strict=True)
        if not is_complete and missing_options(root, deposit) is not None
    ]


def missing_options(root: Path, deposit: Deposit) -> OptionTokens | None:
    """Option tokens of committed queries that a deposit's scores do not list, or None."""
    deposit.check_queries()
    named = prompt_tables.named_tokens(root, deposit.query_set).lazy()
    _, missing = _named_and_missing(named, deposit)
    pairs = missing.sort("row", "token").collect()
    if pairs.is_empty():
        return None
    return prompt_tables.option_tokens(pairs, queries=deposit.layout.queries)


class _Counts(NamedTuple):
    """Options of some prompts in the committed rows of a deposit."""

    named: int
    missing: int
    """Those that its scores do not list."""


def _counts(prompts: pl.LazyFrame, deposit: Deposit) -> _Counts:
    of_set = prompts.filter(pl.col("query_set") == deposit.query_set)
    frames = _named_and_missing(of_set.select("row", "token").drop_nulls().unique(), deposit)
    named, missing = pl.collect_all([frame.select(pl.len()) for frame in frames])
    return _Counts(named.item(), missing.item())


def _named_and_missing(named: pl.LazyFrame, deposit: Deposit) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Named pairs (row, token) in committed rows of a deposit, and those that it does not list."""
    blocks = deposit.committed()  # before others commit more
    present = named.filter(_in_blocks(deposit.layout.block_rows, blocks))
    listed = deposit.option_scores().select(row="query", token="token")
    return present, present.join(listed, on=["row", "token"], how="anti")


def _incomplete(root: Path, deposits: Sequence[Deposit]) -> list[Deposit]:
    """Deposits whose scores may lack an option of some prompt."""
    if not deposits:
        return []
    try:
        complete = _list_all(root, deposits)
    except DamagedError:  # maybe another table of prompts, which these scores do not need
        return [*deposits]
    return [deposit for deposit, of in zip(deposits, complete, strict=True) if not of]


def _list_all(root: Path, deposits: Sequence[Deposit]) -> list[bool]:
    """Whether each deposit lists exactly the option tokens of its committed queries.

    One scan of all compares the number of tokens and a sum of their hashes: a lost table of prompts
    may have named as many tokens as a later one.
    """
    named = {
        name: prompt_tables.named_tokens(root, name) for name in {d.query_set for d in deposits}
    }

    @cache
    def named_in(name: str, block_rows: int, blocks: frozenset[int]) -> tuple[int, int]:
        in_blocks = named[name].filter(_in_blocks(block_rows, blocks))
        count, hashes = in_blocks.select(*_marks("row")).row(0)
        return count, hashes

    committed = [deposit.committed() for deposit in deposits]  # before others commit more
    rows = option_scores(deposits).group_by(DEPOSIT).agg(*_marks("query")).collect()
    listed = {at: (count, hashes) for at, count, hashes in rows.iter_rows()}
    return [
        listed.get(at, (0, 0)) == named_in(d.query_set, d.layout.block_rows, blocks)
        for at, (d, blocks) in enumerate(zip(deposits, committed, strict=True))
    ]


def _marks(row: str) -> tuple[pl.Expr, pl.Expr]:
    """The number of (row, token) pairs, and the sum of their hashes modulo 2^64."""
    pair = pl.col(row).cast(pl.Int64) * 2**32 + pl.col("token")
    return pl.len(), pair.hash().sum().alias("hashes")


def _in_blocks(block_rows: int, blocks: Collection[int]) -> pl.Expr:
    of_row = pl.col("row") // block_rows
    return of_row.is_in(pl.Series(sorted(blocks), dtype=pl.Int32).implode())
