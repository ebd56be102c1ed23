"""Write a smaller copy of a bank: fewer entries of each row, or fewer digits.

Exact scores stay the same: they were computed before rounding. Entries that were not listed are
read from the stored rows. Their ranks are intervals and have `exact` = false.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import KeepLevelError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.lost import require_tables
from logitbank.store.change.about import add_sources, described_as
from logitbank.store.change.copying import (
    Progress,
    copy_head,
    counting,
    missing_heads,
    tables_to_copy,
    write_tables,
)
from logitbank.store.change.rescore import option_scores
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.entries import Entries, top_entries
from logitbank.store.deposits.reduce import FLOAT16_MAX, FLOAT16_MIN
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.files import objects
from logitbank.store.format import commits
from logitbank.store.format.about import own_fields
from logitbank.store.format.layout import BlockData, DepositSpec, Layout
from logitbank.store.format.numbers import as_stored
from logitbank.store.format.schema import SCORE_KEY, SCORES_SCHEMA, Dtype, Json, Keep, OptionTokens
from logitbank.wording import SHRINK_LEVELS


class Shrunk(NamedTuple):
    """Result of `shrink`."""

    deposits: int
    bytes_before: int
    """Bytes of the committed objects that were shrunk, heads included."""
    bytes_after: int


def shrink(
    bank: str | Path,
    out: str | Path,
    *,
    keep: str | None = None,
    dtype: Dtype | None = None,
    progress: Progress | None = None,
) -> Shrunk:
    """Write a smaller copy of a bank. The bank itself is not changed.

    Query sets, prompts, provenance, license and citation are copied. Blocks that are not committed
    stay missing. To finish an interrupted call, make the same call again.

    Parameters
    ----------
    bank
        Bank to read.
    out
        Folder of the bank to write.
    keep
        `topk:K` or `options`. `full` computes full rows from states: the files are larger but need
        no head. None keeps the level of each deposit.
    dtype
        `float16` rounds full rows or states that are float32. None keeps them; rows that are
        computed from states are then float32.
    progress
        Called with the number of rows that are done, and the total.

    Raises
    ------
    UsageError
        Nothing would become smaller, or `out` is the bank itself.
    KeepLevelError
        A deposit keeps less than `keep`, or a value does not fit float16. Names the deposit.
    BankError
        `out` has other contents already.
    DamagedError
        The bank has lost a table. Options that only lost prompts name could never be scored again.
    """
    level = None if keep is None else Keep.parse(keep, accepted=SHRINK_LEVELS)
    source = Bank.open(bank, rows=True)
    if Path(out).resolve() == Path(bank).resolve():
        raise UsageError(f"{out} is the bank itself; name another folder")
    specs = [(deposit, _spec(deposit, level, dtype)) for deposit in source.deposits()]
    if all(spec.layout == deposit.layout for deposit, spec in specs):
        kept = sorted({f"{d.layout.keep} ({d.layout.dtype})" for d, _ in specs}) or ["nothing"]
        raise UsageError(
            f"{source.path} keeps {', '.join(kept)}, and {keep or 'that'}"
            f"{f' ({dtype})' if dtype else ''} is not smaller; use a smaller topk:K, options, or"
            " --dtype float16 for float32 rows or states"
        )
    target = Bank.open(out) if objects.holds_something(Path(out)) else None
    require_tables(source.path, (deposit for deposit, _ in specs))
    copies = tables_to_copy(target, [source])
    if target is None:
        target = Bank.create(out, **own_fields(source.attributes))
    fields = own_fields(target.attributes)
    sources = described_as(source, {deposit.checkpoint.model for deposit, _ in specs})
    add_sources(target.path, [s for s in sources if own_fields(s) != fields])
    write_tables(target, copies)
    finished = counting(sum(deposit.rows_committed for deposit, _ in specs), progress)
    for deposit, spec in specs:
        _shrink(source, deposit, target, spec, finished)
    return Shrunk(len(specs), _bytes(source), _bytes(target))


def _bytes(bank: Bank) -> int:
    """Of the committed objects of deposits, and of heads."""
    return int(bank.info()["bytes"].sum())


def _spec(deposit: Deposit, requested: Keep | None, dtype: Dtype | None) -> DepositSpec:
    """Spec of the smaller deposit; the same spec if nothing becomes smaller."""
    spec, layout = deposit.spec, deposit.layout
    level = requested or layout.keep
    if not layout.keep.covers(level):
        raise KeepLevelError(
            f"{deposit} keeps {layout.keep}, which is less than {level}; use {layout.keep} or less"
        )
    same = level.array == layout.keep.array if level.whole_rows else level == layout.keep
    if not level.made_of(layout.keep):
        raise KeepLevelError(
            f"{deposit} keeps {layout.keep}, of which no {level} can be made; extract again with"
            f" --keep {level} into another bank"
        )
    if dtype == "float32" and layout.dtype != "float32" and level.whole_rows and same:
        raise KeepLevelError(
            f"{deposit} has {layout.dtype} rows, which hold no float32; leave out dtype"
        )
    rounded = level.whole_rows and dtype not in (None, "float32") and layout.dtype == "float32"
    if same and not rounded:
        return spec
    # k of a deposit with rows is not chosen by its keep level, so that it stays.
    keep = Keep(level.level, layout.keep.k) if level.whole_rows else level
    states = keep.array == "hidden"
    shrunk_from: dict[str, Json] = {
        "keep": str(layout.keep),
        "dtype": layout.dtype,
        "zarr.json": objects.digest(deposit.path / "zarr.json").sha256,
    }
    if (earlier := spec.provenance.get("shrunk_from")) is not None:
        shrunk_from["shrunk_from"] = earlier
    return DepositSpec(
        spec.checkpoint,
        spec.query_set,
        Layout.plan(
            queries=layout.queries,
            vocab=layout.vocab,
            dtype=dtype or (layout.dtype if same else layout.row_dtype),
            keep=keep,
            # Rows that are computed from states are larger than the states.
            block_rows=layout.block_rows if same or not keep.whole_rows else None,
            width=layout.width if states else None,
        ),
        spec.vocab_entries,
        {**spec.provenance, "shrunk_from": shrunk_from},
        spec.heads if states else {},
    )


def _shrink(
    bank: Bank,
    deposit: Deposit,
    target: Bank,
    spec: DepositSpec,
    finished: Callable[[int], None],
) -> None:
    layout = deposit.layout
    options = bank.missing_options(deposit) if layout.keep.whole_rows else None
    scores = deposit.scores().collect()
    for head in missing_heads(target.path, [deposit] if spec.heads else []):
        copy_head(head, target.path)
    committed = deposit.committed()
    with target.begin(spec) as writer:
        finished(writer.deposit.rows_committed)
        for block in writer.missing():
            rows = writer.layout.rows(block)
            sources = range(
                rows.start // layout.block_rows, (rows.stop - 1) // layout.block_rows + 1
            )
            if not committed.issuperset(sources):
                continue
            scores_of_block = scores.filter(pl.col("query").is_between(rows.start, rows.stop - 1))
            data = _block(deposit, rows, scores_of_block, options, spec.layout)
            with DepositWriter(writer.deposit, engine=_engine(deposit, sources[0])) as one:
                one.write(block, data)
            finished(len(rows))
        writer.seal()


def _engine(deposit: Deposit, block: int) -> Json:
    name = commits.SEAL if deposit.sealed else str(block)
    engine = commits.engine_of(commits.read(deposit.path, name), block)
    return engine if isinstance(engine, str) else None


def _block(
    deposit: Deposit, rows: range, scores: pl.DataFrame, options: OptionTokens | None, to: Layout
) -> BlockData:
    """One block at the level of `to`. `scores` are all scores of the block, with later options."""
    if options is not None:  # the smaller bank cannot compute them
        scores = pl.concat([scores, option_scores(deposit, options, rows)])
    if to.keep.array == "hidden":
        states = deposit.hidden(list(rows))
        if to.dtype == "float16" and float(np.abs(states).max()) > FLOAT16_MAX:
            raise KeepLevelError(f"{deposit}: a state does not fit float16; keep float32")
        return BlockData(None, scores, as_stored(states, to.dtype))
    if to.keep.whole_rows:
        values = deposit.stored_logprobs(list(rows))
        if to.dtype == "float16" and float(values.min()) < FLOAT16_MIN:
            raise KeepLevelError(
                f"{deposit}: a log-probability of {values.min():.0f} does not fit float16; keep"
                " float32"
            )
        return BlockData(values.astype(to.dtype), scores)
    if deposit.layout.keep.whole_rows and to.keep.k > deposit.layout.keep.k:
        pieces = [_further_top(deposit, p, scores, to.keep.k) for p in _within(deposit, rows)]
        scores = pl.concat([scores, *pieces])
    # An exact rank comes before an equal one that is a lower bound.
    place = pl.struct("rank", ~pl.col("exact"), "token").rank("ordinal").over("query", "kind")
    return BlockData(None, scores.filter((pl.col("kind") == "option") | (place <= to.keep.k)))


def _within(deposit: Deposit, rows: range) -> list[range]:
    """The rows, split into ranges that are read together."""
    whole = deposit.layout.row_ranges
    parts = (range(max(p.start, rows.start), min(p.stop, rows.stop)) for p in whole)
    return [part for part in parts if part]


def _further_top(deposit: Deposit, span: range, scores: pl.DataFrame, k: int) -> pl.DataFrame:
    """The `k` highest entries of each row, without those that are listed as such already.

    Exact scores decide among entries that became equal when they were rounded.
    """
    scores = scores.filter(pl.col("query").is_between(span.start, span.stop - 1))
    listed = scores.filter(pl.col("kind") == "top").select("query", "token")
    exact = scores.filter("exact").with_columns(kind=pl.lit("top", SCORES_SCHEMA["kind"]))
    exact = exact.unique(SCORE_KEY)
    known: dict[int, dict[int, int]] = {}
    for query, token, last in exact.select(
        "query", "token", pl.col("rank") + pl.col("ties")
    ).iter_rows():
        known.setdefault(query, {})[token] = last
    rows = list(span)
    frames = []
    for row, total, stored in zip(
        rows, deposit.logsumexp(rows), deposit.stored_logprobs(rows), strict=True
    ):
        top = _highest(stored.astype(np.float32), k, deposit.spec.vocab_entries, known.get(row, {}))
        frames.append(_frame(row, total, top))
    further = pl.concat(frames)
    better = exact.join(further, on=SCORE_KEY, how="semi")
    both = pl.concat([better, further.join(better, on=SCORE_KEY, how="anti")])
    return both.join(listed, on=["query", "token"], how="anti")


def _highest(values: np.ndarray, k: int, entries: int, known: dict[int, int]) -> Entries:
    """The `k` highest of `values` (v,). Ties at the last place are decided by exact ranks.

    `known` has the largest rank that each token with an exact score can have.
    """
    k = min(k, len(values))
    last = np.partition(values, len(values) - k)[len(values) - k]
    pool = top_entries(values, int(np.count_nonzero(values >= last)), entries)
    ranks = [known.get(int(token)) for token in pool.token]
    place = [1 if rank is None else 0 if rank <= k else 2 for rank in ranks]
    chosen = np.sort(np.argsort(place, kind="stable")[:k])
    return Entries(*(field[chosen] for field in pool))


def _frame(row: int, logsumexp: np.float64, top: Entries) -> pl.DataFrame:
    count = len(top.token)
    columns = {
        "query": [row] * count,
        "kind": ["top"] * count,
        "logsumexp": [logsumexp] * count,
        "exact": [False] * count,
        **top._asdict(),
        "logit": (top.logit + logsumexp).astype(np.float32),
    }
    return pl.DataFrame({name: columns[name] for name in SCORES_SCHEMA}, schema=SCORES_SCHEMA)
