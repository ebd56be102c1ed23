"""The highest logits of a deposit's queries, as arrays."""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import DamagedError, KeepLevelError, UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import VERIFY
from logitbank.store.filter.filtering import AT_ONCE, Listed

_FEW = 16
"""Rows whose entries are ordered at once, by numbers of 8 bytes: 130 MB of 128 with 65,536."""
_COLUMNS = ("query", "token", "logit", "logsumexp", "exact")


class Top(NamedTuple):
    """The highest entries of the committed queries."""

    rows: np.ndarray
    """(n,) rows of the query set."""
    listed: Listed


def top(deposit: Deposit, k: int, scores: pl.DataFrame | None = None) -> Top:
    """The `k` highest entries of every committed query.

    They come from the scores if those list as many, else from full rows, whose logits are rounded.
    `scores` are those of `first_entries`, if they were read already. Raises UsageError if there are
    fewer outputs, KeepLevelError if the bank keeps fewer entries, and DamagedError if scores are
    incomplete.
    """
    layout = deposit.layout
    if k > layout.vocab:
        raise UsageError(
            f"{deposit} has {layout.vocab:,} outputs, and the {k:,} highest are needed; use a"
            f" filter of k ≤ {layout.vocab:,}"
        )
    listed_k = min(layout.keep.k, layout.vocab)
    if listed_k < k and not layout.keep.whole_rows:
        raise KeepLevelError(
            f"{deposit} lists {listed_k} highest tokens for each query, and {k} are needed; use a"
            f" filter of k ≤ {listed_k}, or extract again with --keep topk:{max(k, 64)}"
        )
    frame = deposit.scores().filter(first_entries(k)).collect() if scores is None else scores
    best = frame.lazy().filter(pl.col("kind") == "top").select(_COLUMNS).collect()
    query = best["query"].to_numpy()
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    wanted = min(listed_k, k)
    if (np.diff(starts, append=len(query)) < wanted).any() or len(np.unique(query[starts])) < len(
        starts
    ):
        raise DamagedError(f"{deposit}: a query does not list {wanted} highest tokens; {VERIFY}")
    rows = query[starts]
    logsumexp = best["logsumexp"].to_numpy()[starts].astype(np.float64)
    if listed_k < k:
        return Top(rows, _of_full_rows(deposit, rows, logsumexp, k))
    at = starts[:, None] + np.arange(k)
    tokens, logits = best["token"].to_numpy()[at], best["logit"].to_numpy()[at]

    def tail(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _tail(deposit, rows[queries], k, listed_k)

    ranked = bool(best["exact"].all())  # a bank that was shrunk lists rounded ones too
    return Top(rows, Listed(tokens, logits.astype(np.float64), logsumexp, listed_k, tail, ranked))


def first_entries(k: int) -> pl.Expr:
    """Rows of scores of the `k` highest entries, more if some tie."""
    return (pl.col("kind") == "top") & (pl.col("rank") <= k)


def _tail(
    deposit: Deposit, rows: np.ndarray, k: int, listed_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and logits (m, own − k) of the entries after the k of these rows."""
    wanted = pl.Series(np.sort(rows), dtype=pl.Int32)
    frame = (
        deposit.scores()
        .filter((pl.col("kind") == "top") & pl.col("query").is_in(wanted.implode()))
        .select("query", "token", "logit")
        .collect()
    )
    shape = (-1, listed_k)
    order = np.argsort(frame["query"].to_numpy().reshape(shape)[:, 0])
    order = order[np.searchsorted(np.sort(rows), rows)]
    tokens = frame["token"].to_numpy().reshape(shape)[order, k:]
    logits = frame["logit"].to_numpy().reshape(shape)[order, k:]
    return tokens, logits.astype(np.float64)


def _of_full_rows(deposit: Deposit, rows: np.ndarray, logsumexp: np.ndarray, k: int) -> Listed:
    tokens, values = np.empty((len(rows), k), np.int32), np.empty((len(rows), k))

    for start in range(0, len(rows), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        # As they are stored: in float32 they would be twice the size.
        tokens[part], values[part] = highest(deposit.stored_logprobs(rows[part]), k)

    def tail(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        vocab = deposit.layout.vocab
        every = np.arange(vocab, dtype=np.int32)
        after, logits = (np.empty((len(queries), vocab - k), t) for t in (np.int32, np.float64))
        for at, row in enumerate(deposit.logprobs(rows[queries])):
            after[at] = np.delete(every, tokens[queries[at]])
            np.add(row[after[at]], logsumexp[queries[at]], out=logits[at])
        return after, logits

    logits = values + logsumexp[:, None]
    return Listed(tokens, logits, logsumexp, deposit.layout.vocab, tail, ranked=False)


def highest(logprobs: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and log-probabilities (m, k) of the highest entries, equal ones by token."""
    some = (logprobs[at : at + _FEW] for at in range(0, len(logprobs), _FEW))
    parts = [_highest(rows.astype(np.float32, copy=False), k) for rows in some]
    parts = parts or [_highest(logprobs, k)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([p[1] for p in parts])


def _highest(logprobs: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.broadcast_to(np.arange(logprobs.shape[1]), logprobs.shape)
    if k < logprobs.shape[1]:
        tokens = np.argpartition(-logprobs, k - 1, axis=1)[:, :k]
        last = np.take_along_axis(logprobs, tokens, axis=1).min(axis=1)
        for row in np.flatnonzero((logprobs >= last[:, None]).sum(axis=1) > k):  # a tie is cut
            pool = np.flatnonzero(logprobs[row] >= last[row])
            tokens[row] = pool[np.argsort(-logprobs[row, pool], kind="stable")[:k]]
    values = np.take_along_axis(logprobs, tokens, axis=1)
    order = np.lexsort((tokens, -values), axis=1)
    return np.take_along_axis(tokens, order, axis=1), np.take_along_axis(values, order, axis=1)
