"""Write a smaller copy of a bank: fewer entries of each row, or fewer digits.

Exact scores stay the same: they were computed before rounding. Unlisted entries are read from the
stored rows. Their ranks are intervals and have `exact` = false.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import KeepLevelError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.care.lost import require_tables
from logitbank.store.change.rewrite import new_bank, rewrite, stored_scores
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.entries import Entries, top_entries
from logitbank.store.deposits.reduce import FLOAT16_MAX, FLOAT16_MIN
from logitbank.store.files import objects, verified
from logitbank.store.files.staging import remove_dead
from logitbank.store.format.layout import BlockData, DepositSpec, Layout
from logitbank.store.format.numbers import as_stored
from logitbank.store.format.schema import SCORE_KEY, SCORES_SCHEMA, Dtype, Json, Keep
from logitbank.store.progress import Advance, Progress, counting
from logitbank.store.share.copying import open_folder, require_other
from logitbank.wording import SHRINK_LEVELS


class Shrunk(NamedTuple):
    """Result of `shrink`."""

    deposits: int
    bytes_before: int
    """Bytes of the committed objects that were shrunk, heads included."""
    bytes_after: int
    incomplete: int
    """Deposits that were left out because they are in progress."""


def shrink(
    bank: str | Path,
    out: str | Path,
    *,
    keep: str | None = None,
    dtype: Dtype | None = None,
    progress: Progress | None = None,
) -> Shrunk:
    """Write a smaller copy of a bank. The bank itself is not changed.

    Query sets, prompts, provenance, license and citation are copied. Deposits in progress are left
    out. To finish an interrupted call, make the same call again.

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
        Nothing would become smaller, or `out` is the bank itself or a URL.
    KeepLevelError
        A deposit keeps less than `keep`, a value does not fit float16, or `out` has the deposit at
        another level. Names the deposit.
    BankError
        `out` has other contents already.
    DamagedError
        The bank has lost a table. Options that only lost prompts name could never be scored again.
    """
    level = None if keep is None else Keep.parse(keep, accepted=SHRINK_LEVELS)
    folder, source = open_folder(out), Bank.open(bank, rows=True)
    require_other(out, source.path)
    deposits = source.deposits()
    specs = [(each, _smaller(each, level, dtype)) for each in deposits if each.sealed]
    if all(spec.layout == deposit.layout for deposit, spec in specs):
        raise UsageError(
            f"{source.path} would not become smaller. Use a smaller topk:K, options, or --dtype"
            " float16 for float32 rows or states."
        )
    written = {(d.checkpoint, d.query_set): d for d in catalog.deposits(Path(out))}
    for deposit, spec in specs:
        stored = written.get((deposit.checkpoint, deposit.query_set))
        if stored is not None and stored.layout.keep != spec.layout.keep:
            raise KeepLevelError(
                f"{out} has {stored.checkpoint} at keep level {stored.layout.keep}, not"
                f" {spec.layout.keep}. Choose another folder."
            )
    require_tables(source.path, (deposit for deposit, _ in specs))
    models = {deposit.checkpoint.model for deposit, _ in specs}
    heads = {digest for _, spec in specs for digest in spec.heads.values()}
    target = new_bank(source, folder, models, heads)
    advance = counting(sum(deposit.layout.queries for deposit, _ in specs), progress)
    with verified.copying_to(target.path):
        for deposit, spec in specs:
            _shrink(deposit, target, spec, advance)
    remove_dead(target.path)
    before, after = (int(each.info().filter("sealed")["bytes"].sum()) for each in (source, target))
    return Shrunk(len(specs), before, after, len(deposits) - len(specs))


def _smaller(deposit: Deposit, requested: Keep | None, dtype: Dtype | None) -> DepositSpec:
    """Spec of the smaller deposit; the same spec if nothing becomes smaller."""
    spec, layout = deposit.spec, deposit.layout
    level = requested or layout.keep
    if not level.derivable_from(layout.keep):
        raise KeepLevelError(
            f"{deposit} keeps {layout.keep}, from which {level} cannot be made. Use a smaller"
            f" level, or extract again with --keep {level} into another bank."
        )
    same = level.array == layout.keep.array if level.has_full_rows else level == layout.keep
    if dtype == "float32" and layout.dtype != "float32" and level.has_full_rows and same:
        raise KeepLevelError(f"{deposit} has {layout.dtype} rows. Omit --dtype float32.")
    rounded = level.has_full_rows and dtype not in (None, "float32") and layout.dtype == "float32"
    if same and not rounded:
        return spec
    # k of a deposit with rows is not chosen by its keep level, so it stays.
    keep = Keep(level.level, layout.keep.k) if level.has_full_rows else level
    states = keep.array == "hidden"
    shrunk_from: dict[str, Json] = {
        "keep": str(layout.keep),
        "dtype": layout.dtype,
        "zarr.json": objects.digest(deposit.path / "zarr.json").sha256,
    }
    if (earlier := spec.provenance.get("shrunk_from")) is not None:
        shrunk_from["shrunk_from"] = earlier
    smaller = Layout.plan(
        queries=layout.queries,
        vocab=layout.vocab,
        dtype=dtype or (layout.dtype if same else layout.row_dtype),
        keep=keep,
        # Rows that are computed from states are larger than the states.
        block_rows=layout.block_rows if same or not keep.has_full_rows else None,
        width=layout.width if states else None,
    )
    return replace(
        spec,
        layout=smaller,
        provenance={**spec.provenance, "shrunk_from": shrunk_from},
        heads=spec.heads if states else {},
    )


def _shrink(deposit: Deposit, target: Bank, spec: DepositSpec, advance: Advance) -> None:
    stored = stored_scores(deposit)
    rewrite(
        deposit, target, spec, lambda rows, to: _block(deposit, rows, stored(rows), to), advance
    )


def _block(deposit: Deposit, rows: range, scores: pl.DataFrame, to: Layout) -> BlockData:
    """One block in the layout `to`. `scores` are all scores of the block, with later options."""
    if to.keep.array == "hidden":
        states = deposit.hidden(list(rows))
        if to.dtype == "float16" and float(np.abs(states).max()) > FLOAT16_MAX:
            raise KeepLevelError(f"{deposit}: a state exceeds the range of float16. Use float32.")
        return BlockData(as_stored(states, to.dtype), scores)
    if to.keep.has_full_rows:
        values = deposit.stored_logprobs(list(rows))
        if to.dtype == "float16" and float(values.min()) < FLOAT16_MIN:
            raise KeepLevelError(
                f"{deposit}: a log-probability of {values.min():.0f} exceeds the range of float16."
                " Use float32."
            )
        return BlockData(values.astype(to.dtype), scores)
    if deposit.layout.keep.has_full_rows and to.keep.k > deposit.layout.keep.k:
        parts = (
            p for p in deposit.layout.row_ranges if p.start < rows.stop and rows.start < p.stop
        )
        spans = [range(max(p.start, rows.start), min(p.stop, rows.stop)) for p in parts]
        more = [_unlisted_top(deposit, span, scores, to.keep.k) for span in spans]
        scores = pl.concat([scores, *more])
    # An exact rank comes before an equal one that is a lower bound.
    place = pl.struct("rank", ~pl.col("exact"), "token").rank("ordinal").over("query", "kind")
    return BlockData(None, scores.filter((pl.col("kind") == "option") | (place <= to.keep.k)))


def _unlisted_top(deposit: Deposit, span: range, scores: pl.DataFrame, k: int) -> pl.DataFrame:
    """The highest `k` entries of stored rows, and their equals, that are not listed as such.

    Exact scores of options replace rounded ones.
    """
    rows = list(span)
    known = scores.filter(pl.col("query").is_in(rows))
    frames = [
        pl.DataFrame(
            {
                **_top(values.astype(np.float32), k, deposit.spec.vocab_entries)._asdict(),
                "query": row,
                "kind": "top",
                "logsumexp": total,
                "exact": False,
            }
        )
        for row, total, values in zip(
            rows, deposit.logsumexp(rows), deposit.stored_logprobs(rows), strict=True
        )
    ]
    logit = (pl.col("logit") + pl.col("logsumexp")).cast(pl.Float32)
    top = pl.concat(frames).with_columns(logit).cast(SCORES_SCHEMA).select(*SCORES_SCHEMA)
    exact = known.filter("exact").with_columns(kind=pl.lit("top", SCORES_SCHEMA["kind"]))
    better = exact.unique(SCORE_KEY).join(top, on=SCORE_KEY, how="semi")
    joined = pl.concat([better, top.join(better, on=SCORE_KEY, how="anti")])
    listed = known.filter(pl.col("kind") == "top")
    return joined.join(listed, on=["query", "token"], how="anti")


def _top(values: np.ndarray, k: int, vocab_entries: int) -> Entries:
    """The `k` highest of `values` (v,), and all that equal the last of them."""
    k = min(k, len(values))
    last = np.partition(values, len(values) - k)[len(values) - k]
    return top_entries(values, int(np.count_nonzero(values >= last)), vocab_entries)
