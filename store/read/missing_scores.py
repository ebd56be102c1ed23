"""Options that prompts name and scores do not list."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import polars as pl

from logitbank.errors import BankError, DamagedError
from logitbank.store.deposits.deposit import Deposit, require_query_count
from logitbank.store.deposits.scores import DEPOSIT
from logitbank.store.files import copies
from logitbank.store.format.schema import OptionTokens
from logitbank.store.read.scan_files import option_scores
from logitbank.store.tables import prompt_tables
from logitbank.wording import counted


def require_scored(
    root: Path, name: str, deposits: Iterable[Deposit], prompts: pl.LazyFrame | None = None
) -> None:
    """Refuse deposits with full rows without scores of options of a prompt set.

    The options were added after the deposit was made, and `Bank.rescore` scores them. Deposits that
    keep less cannot be completed, and are ignored. `prompts` are the rows of the prompt set that
    matter, all if None. Raises BankError.
    """
    full = [d for d in deposits if d.layout.keep.has_full_rows]
    suspects = _incomplete(root, full)
    if not suspects:
        return
    prompts = prompt_tables.scan_prompts(root, name) if prompts is None else prompts
    missing = {str(d): count for d in suspects if (count := len(_unlisted(prompts, d)[1]))}
    if not missing:
        return
    url = copies.copy_source_url(root)
    pull = f"`logitbank pull {url} FOLDER`, then " if url else ""
    where = counted(len(missing), "deposit")
    raise BankError(
        f"Scores of {sum(missing.values()):,} options of prompt set {name!r} are missing in"
        f" {where} ({next(iter(missing))}): the options were added later."
        f" Fix: run {pull}the same `logitbank extract` again, or `Bank.rescore()` in Python."
    )


def without_scores(root: Path, name: str, deposits: Iterable[Deposit]) -> list[Deposit]:
    """Deposits that keep no full rows and list none of the options of a prompt set.

    These options were added later, and nothing that the deposit keeps gives their scores.
    """
    less = [deposit for deposit in deposits if not deposit.layout.keep.has_full_rows]
    suspects = _incomplete(root, less)
    if not suspects:
        return []
    prompts = prompt_tables.scan_prompts(root, name)
    counts = ((deposit, _unlisted(prompts, deposit)) for deposit in suspects)
    return [deposit for deposit, (named, pairs) in counts if 0 < named == len(pairs)]


def with_missing_options(root: Path, deposits: Iterable[Deposit]) -> list[Deposit]:
    """Deposits with full rows and `missing_options`."""
    full = [deposit for deposit in deposits if deposit.layout.keep.has_full_rows]
    return [d for d in _incomplete(root, full) if missing_options(d) is not None]


def missing_options(deposit: Deposit) -> OptionTokens | None:
    """Option tokens of committed queries that a deposit's scores do not list, or None."""
    require_query_count(deposit)
    named = prompt_tables.named_tokens(deposit.bank, deposit.query_set)
    _, pairs = _unlisted(named.lazy().with_columns(query_set=pl.lit(deposit.query_set)), deposit)
    if pairs.is_empty():
        return None
    return prompt_tables.as_option_tokens(pairs.sort("row", "token"), deposit.layout.queries)


def _unlisted(prompts: pl.LazyFrame, deposit: Deposit) -> tuple[int, pl.DataFrame]:
    """Number of (row, token) pairs of prompts in committed rows, and the pairs without a score."""
    blocks = deposit.committed()  # before others commit more
    pairs = prompts.filter(pl.col("query_set") == deposit.query_set).select("row", "token")
    in_blocks = _in_blocks(deposit.layout.block_rows, blocks)
    named = pairs.drop_nulls().unique().filter(in_blocks).collect()
    scores = deposit.option_scores().select(row="query", token="token")
    return len(named), named.lazy().join(scores, on=["row", "token"], how="anti").collect()


def _incomplete(root: Path, deposits: Sequence[Deposit]) -> list[Deposit]:
    """Deposits that do not list exactly the option tokens of their committed queries.

    One scan of all compares the number of tokens and a sum of their hashes: a lost table of prompts
    may have named as many tokens as a later one. If a table is damaged, the result is all deposits:
    the scores of the caller's prompt set may not need that table.
    """
    if not deposits:
        return []
    committed = [deposit.committed() for deposit in deposits]  # before others commit more
    try:
        rows = option_scores(deposits).group_by(DEPOSIT).agg(*_totals("query")).collect()
        query_sets = {deposit.query_set for deposit in deposits}
        named = {name: prompt_tables.named_tokens(root, name) for name in query_sets}
    except DamagedError:
        return [*deposits]
    listed = {number: (count, hashes) for number, count, hashes in rows.iter_rows()}
    expected: dict[tuple[str, int, frozenset[int]], tuple[int, int]] = {}
    incomplete = []
    for number, (deposit, blocks) in enumerate(zip(deposits, committed, strict=True)):
        key = deposit.query_set, deposit.layout.block_rows, blocks
        if key not in expected:
            in_blocks = named[key[0]].filter(_in_blocks(key[1], blocks))
            expected[key] = in_blocks.select(*_totals("row")).row(0)
        if listed.get(number, (0, 0)) != expected[key]:
            incomplete.append(deposit)
    return incomplete


def _totals(row: str) -> tuple[pl.Expr, pl.Expr]:
    """The number of (row, token) pairs, and the sum of their hashes modulo 2^64."""
    pair = pl.col(row).cast(pl.Int64) * 2**32 + pl.col("token")
    return pl.len(), pair.hash().sum().alias("hashes")


def _in_blocks(block_rows: int, blocks: Collection[int]) -> pl.Expr:
    block = pl.col("row") // block_rows
    return block.is_in(pl.Series(sorted(blocks), dtype=pl.Int32).implode())
