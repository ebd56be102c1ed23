"""Log-probabilities whose rows sum to one again, which rounding had taken from them."""

from collections.abc import Callable

import numpy as np

from logitbank.store.format.numbers import logsumexp

_ROWS = 128
"""Rows that are in memory at once: those of one inner chunk."""


def normalised(
    read: Callable[[np.ndarray], np.ndarray],
    rows: np.ndarray,
    tokens: np.ndarray | None,
    *,
    vocab: int,
) -> np.ndarray:
    """x − ln Σ exp(x) of each row x, the sum over all its outputs and in float64.

    Parameters
    ----------
    read
        Gives whole rows, (n, v), of those that it is called with.
    rows
        (q,) in any order.
    tokens
        Which outputs to give, (t,); all `vocab` if None. Nothing else depends on them.

    Returns
    -------
    (q, t) float32 nats. −inf stays −inf and adds nothing to the sum.
    """
    out: np.ndarray | None = None
    order = np.argsort(rows, kind="stable")  # so that an inner chunk is decoded once
    for places in np.split(order, np.flatnonzero(np.diff(rows[order] // _ROWS)) + 1):
        if not len(places):
            continue
        distinct, which = np.unique(rows[places], return_inverse=True)
        whole = read(distinct)
        for at, stored in enumerate(whole):
            values = stored.astype(np.float64)
            values -= logsumexp(values)
            values = values if tokens is None else values[tokens]
            if out is None:  # not before: a row that was read bears out what a stranger claims
                out = np.empty((len(rows), len(values)), np.float32)
            out[places[which == at]] = values
    return (
        np.empty((0, vocab if tokens is None else len(tokens)), np.float32) if out is None else out
    )
