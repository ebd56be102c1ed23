"""The highest logits of a deposit's queries, as arrays."""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import DamagedError, KeepLevelError, UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.entries import top_entries

AT_ONCE = 128
"""Rows that are in memory at once: those of one inner chunk."""
_COLUMNS = ("query", "token", "logit", "logsumexp")


class Listed(NamedTuple):
    """The highest entries of n queries, best first."""

    rows: np.ndarray
    """(n,) rows of the query set."""
    tokens: np.ndarray
    """(n, k) int32."""
    logits: np.ndarray
    """(n, k) float64."""
    logsumexp: np.ndarray
    """(n,) float64, of the whole row."""


def top(deposit: Deposit, k: int, scores: pl.DataFrame | None = None) -> Listed:
    """The `k` highest entries of every committed query.

    They come from the scores if those list as many, else from full rows, whose logits are rounded.
    `scores` are those of `first_entries`, if they were read already. Raises UsageError if there are
    fewer outputs, KeepLevelError if the bank keeps fewer entries, and DamagedError if scores are
    incomplete.
    """
    layout = deposit.layout
    if k > layout.vocab:
        raise UsageError(
            f"{deposit} has {layout.vocab:,} outputs, and the filter needs {k:,}. Use a filter of"
            f" k ≤ {layout.vocab:,}."
        )
    listed_k = min(layout.keep.k, layout.vocab)
    if listed_k < k and not layout.keep.has_full_rows:
        raise KeepLevelError(
            f"{deposit} has the {listed_k} highest tokens of each query, and the filter needs {k}."
            f" Use a filter of k ≤ {listed_k}, or extract again with --keep topk:{max(k, 64)}."
        )
    frame = deposit.scores().filter(first_entries(k)).collect() if scores is None else scores
    best = frame.lazy().filter(pl.col("kind") == "top").select(_COLUMNS).collect()
    query = best["query"].to_numpy()
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    expected = min(listed_k, k)
    is_short = (np.diff(starts, append=len(query)) < expected).any()
    if is_short or len(np.unique(query[starts])) < len(starts):
        raise DamagedError(
            f"{deposit}: a query does not list {expected} highest tokens. Run `logitbank verify`."
        )
    rows = query[starts]
    logsumexp = best["logsumexp"].to_numpy()[starts].astype(np.float64)
    if listed_k < k:
        return _full_row_top(deposit, rows, logsumexp, k)
    index = starts[:, None] + np.arange(k)
    tokens, logits = best["token"].to_numpy()[index], best["logit"].to_numpy()[index]
    return Listed(rows, tokens, logits.astype(np.float64), logsumexp)


def first_entries(k: int) -> pl.Expr:
    """Rows of scores of the `k` highest entries, more if some tie."""
    return (pl.col("kind") == "top") & (pl.col("rank") <= k)


def _full_row_top(deposit: Deposit, rows: np.ndarray, logsumexp: np.ndarray, k: int) -> Listed:
    vocab = deposit.layout.vocab
    tokens, values = np.empty((len(rows), k), np.int32), np.empty((len(rows), k))
    for start in range(0, len(rows), AT_ONCE):
        # In the stored dtype: in float32 they would be twice the size.
        stored = deposit.stored_logprobs(rows[start : start + AT_ONCE])
        for i, row in enumerate(stored, start):
            best = top_entries(row.astype(np.float32), k, vocab)
            tokens[i], values[i] = best.token, best.logit
    return Listed(rows, tokens, values + logsumexp[:, None], logsumexp)
