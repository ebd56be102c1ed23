"""The highest logits of a deposit's queries, as arrays."""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import DamagedError, KeepLevelError
from logitbank.store.deposit import VERIFY, Deposit
from logitbank.store.filtering import Listed

_ROWS = 1024


class Top(NamedTuple):
    """The highest entries of the committed queries."""

    rows: np.ndarray
    """(n,) rows of the query set."""
    listed: Listed


def top(deposit: Deposit, k: int, scores: pl.DataFrame | None = None) -> Top:
    """At least `k` highest entries of every committed query; more where the bank lists more.

    Out of the scores where those list as many, else out of full rows, whose logits are rounded as
    they are stored.

    Parameters
    ----------
    scores
        The deposit's, where they were read already.

    Raises
    ------
    KeepLevelError
        The bank keeps fewer.
    DamagedError
        The scores do not list what they should.
    """
    layout = deposit.layout
    own = min(layout.keep.k, layout.vocab)
    if own < k and layout.keep.level != "full":
        raise KeepLevelError(
            f"{deposit} lists {own} highest tokens for each query, and {k} are needed; use a filter"
            f" of k ≤ {own}, or extract again with --keep topk:{max(k, 64)}"
        )
    columns = ("query", "token", "logit", "logsumexp")
    frame = (deposit.scores() if scores is None else scores.lazy()).filter(pl.col("kind") == "top")
    best = frame.select(*columns).collect()
    query = best["query"].to_numpy()
    if len(query) % own or not (query.reshape(-1, own) == query[::own, None]).all():
        raise DamagedError(f"{deposit}: a query does not list {own} highest tokens; {VERIFY}")
    rows = query[::own]
    logsumexp = best["logsumexp"].to_numpy()[::own].astype(np.float64)
    if own < k:
        return Top(rows, _of_full_rows(deposit, rows, logsumexp, min(k, layout.vocab)))
    tokens, logits = (best[name].to_numpy().reshape(-1, own) for name in ("token", "logit"))
    return Top(rows, Listed(tokens, logits.astype(np.float64), logsumexp))


def _of_full_rows(deposit: Deposit, rows: np.ndarray, logsumexp: np.ndarray, k: int) -> Listed:
    tokens = np.empty((len(rows), k), np.int32)
    values = np.empty((len(rows), k))
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        logprobs = deposit.logprobs(rows[part])
        best = (
            np.argpartition(-logprobs, k - 1, axis=1)[:, :k]
            if k < logprobs.shape[1]
            else (np.broadcast_to(np.arange(k), (len(logprobs), k)))
        )
        found = np.take_along_axis(logprobs, best, axis=1)
        order = np.lexsort((best, -found), axis=1)
        tokens[part] = np.take_along_axis(best, order, axis=1)
        values[part] = np.take_along_axis(found, order, axis=1)
    return Listed(tokens, values + logsumexp[:, None], logsumexp)
