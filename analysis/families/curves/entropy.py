"""Entropy of full vocabulary rows, some of them in memory at once."""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitbank.store import Deposit

ROWS = 128
"""Vocabulary rows that are in memory at once: those of an inner chunk."""


def entropies(logprobs: ArrayLike) -> NDArray[np.float64]:
    r"""Entropy of each row, :math:`-\sum_v p_v\ln p_v`, in nats and float64.

    `logprobs` (q, v) are of rows that sum to 1; −inf adds nothing.

    >>> entropies(np.log([[0.5, 0.25, 0.25]])).round(4).tolist()
    [1.0397]
    """
    values = np.asarray(logprobs, dtype=np.float64)
    p = np.exp(values)
    terms: NDArray[np.float64] = np.multiply(p, values, where=p > 0, out=np.zeros_like(p))
    return -np.asarray(terms.sum(axis=1), dtype=np.float64)


def entropies_of(deposit: Deposit, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Entropy of some rows (q,) of a deposit that keeps them whole, in their ascending order."""
    found = np.empty(len(rows))
    starts = np.flatnonzero(np.diff(rows // ROWS, prepend=-1))
    for start, stop in pairwise([*starts, len(rows)]):
        found[start:stop] = entropies(deposit.logprobs(rows[start:stop], normalised=True))
    return found
