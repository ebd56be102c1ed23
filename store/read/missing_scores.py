"""Options that prompts name and scores do not list: told, whether or not full rows hold them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import BankError, DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import copies
from logitbank.store.format.schema import OptionTokens
from logitbank.store.read.together import DEPOSIT, option_scores
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
    incomplete = [
        (d, counts.lacking) for d, counts in _counts(root, prompts, full) if counts.lacking
    ]
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

    These were named later, and nothing that is kept has them.
    """
    less = [at for at, deposit in enumerate(deposits) if not deposit.layout.keep.whole_rows]
    counts = _counts(root, prompts, [deposits[at] for at in less])
    lacking = {at for at, (_, of) in zip(less, counts, strict=True) if 0 < of.named == of.lacking}
    return [at in lacking for at in range(len(deposits))]


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
    deposit.check_queries()
    layout, blocks = deposit.layout, deposit.committed()  # before others commit more
    listed = deposit.scores().filter(pl.col("kind") == "option").select("query", "token")
    pairs = (
        prompt_tables.named_tokens(root, deposit.query_set)
        .lazy()
        .filter(_in_blocks(layout.block_rows, blocks))
        .join(listed, left_on=["row", "token"], right_on=["query", "token"], how="anti")
        .sort("row", "token")
        .collect()
    )
    return None if pairs.is_empty() else prompt_tables.option_tokens(pairs, queries=layout.queries)


class _Counts(NamedTuple):
    """Of a deposit's committed rows."""

    named: int
    """Options of some prompts, 0 where nothing is lacking of what all prompts name."""
    lacking: int
    """Those that it does not list."""


def _counts(
    root: Path, prompts: pl.LazyFrame, deposits: Sequence[Deposit]
) -> list[tuple[Deposit, _Counts]]:
    """Each deposit with what it lacks of these prompts' options."""
    if not deposits:
        return []
    try:
        complete = _list_all(root, deposits)
    except DamagedError:  # of another table of prompts, maybe, which is not asked about
        complete = [False] * len(deposits)
    counts = {at: _Counts(0, 0) for at, is_complete in enumerate(complete) if is_complete}
    rest = [at for at in range(len(deposits)) if at not in counts]
    if rest:
        wanted = {
            name: prompts.filter(pl.col("query_set") == name)
            .select("row", "token")
            .drop_nulls()
            .unique()
            .collect()
            for name in {deposits[at].query_set for at in rest}
        }
        counts |= zip(rest, _of_wanted(wanted, [deposits[at] for at in rest]), strict=True)
    return [(deposit, counts[at]) for at, deposit in enumerate(deposits)]


def _of_wanted(
    wanted: Mapping[str, pl.DataFrame], deposits: Sequence[Deposit]
) -> Iterator[_Counts]:
    """Of each deposit, how many wanted options its committed rows have, and lack; by one scan.

    `wanted` has (row, token) of each query set.
    """
    blocks = [deposit.committed() for deposit in deposits]  # before others commit more
    numbers = {name: at for at, name in enumerate(wanted)}
    sets = pl.Series([numbers[deposit.query_set] for deposit in deposits])
    block_rows = pl.Series([deposit.layout.block_rows for deposit in deposits])
    committed = pl.DataFrame(
        [(at, block) for at, own in enumerate(blocks) for block in own],
        schema={DEPOSIT: pl.UInt32, "block": pl.Int64},
        orient="row",
    )
    options = pl.concat(
        table.select(
            set=pl.lit(numbers[name], pl.Int64), row=pl.col("row").cast(pl.Int64), token="token"
        )
        for name, table in wanted.items()
    )
    listed = (
        option_scores(deposits)
        .select(
            DEPOSIT,
            "token",
            set=pl.lit(sets).gather(DEPOSIT),
            row=pl.col("query").cast(pl.Int64),
            block=pl.col("query").cast(pl.Int64) // pl.lit(block_rows).gather(DEPOSIT),
        )
        .join(committed.lazy(), on=[DEPOSIT, "block"], how="semi")
        .join(options.lazy(), on=["set", "row", "token"], how="semi")
        .group_by(DEPOSIT)
        .len()
    )
    has = dict(listed.collect().iter_rows())
    for at, (deposit, own) in enumerate(zip(deposits, blocks, strict=True)):
        in_blocks = _in_blocks(deposit.layout.block_rows, own)
        named = len(wanted[deposit.query_set].filter(in_blocks))
        yield _Counts(named, named - has.get(at, 0))


def _list_all(root: Path, deposits: Sequence[Deposit]) -> list[bool]:
    """Whether each deposit lists what prompts name for its committed queries, and nothing else.

    By the number of tokens and a sum of their hashes, which one scan of all gives: a table of
    prompts that is lost may have named as many tokens as one that came later.
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
    """How many (row, token) pairs there are, and the sum of their hashes modulo 2^64."""
    pair = pl.col(row).cast(pl.Int64) * 2**32 + pl.col("token")
    return pl.len(), pair.hash().sum().alias("hashes")


def _in_blocks(block_rows: int, blocks: Collection[int]) -> pl.Expr:
    of_row = pl.col("row") // block_rows
    return of_row.is_in(pl.Series(sorted(blocks), dtype=pl.Int32).implode())
