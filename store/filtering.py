"""What a filter makes of the scores of one deposit: pure arithmetic on arrays."""

from typing import NamedTuple

import numpy as np

from logitbank.store.filters import Filter


class Listed(NamedTuple):
    """The highest entries of n queries, best first."""

    tokens: np.ndarray
    """(n, K) int32."""
    logits: np.ndarray
    """(n, K) float64."""
    logsumexp: np.ndarray
    """(n,) float64, of the whole row."""


class Scores(NamedTuple):
    """Entries of any queries, each field (m,)."""

    query: np.ndarray
    """Index into the listed queries."""
    token: np.ndarray
    logit: np.ndarray
    """float64."""
    rank: np.ndarray
    ties: np.ndarray
    padding_above: np.ndarray
    padding_ties: np.ndarray
    exact: np.ndarray


class Sizes(NamedTuple):
    """Outputs of a head."""

    vocab: int
    entries: int
    """Those from here on are padding."""


def filtered(listed: Listed, scores: Scores, by: Filter, sizes: Sizes) -> Scores:
    """Scores after a filter: logits become log-probabilities plus the row's log-sum-exp.

    Ranks count the new probabilities. A token that a filter which keeps the tail puts below all
    listed ones has a rank that is only known to lie in an interval: `exact` is false and `rank` to
    `rank + ties` are its bounds.

    Parameters
    ----------
    listed
        At least k entries for each query.
    scores
        Before the filter; a query's entries in any order.
    """
    k, q = by.k, scores.query
    before = listed.logits[:, :k]
    after = by.log_shares(before)
    if by.mode == "keep_tail":
        after += _logsumexp(before)[:, None]  # the mass of the k, in the row's own scale
    else:
        after += listed.logsumexp[:, None]
    own = listed.tokens[q, :k] == scores.token[:, None]
    hit = own.any(axis=1)
    logit = np.where(hit, after[q, own.argmax(axis=1)], scores.logit)
    if by.mode == "truncate":
        logit[~hit] = -np.inf
    padding = listed.tokens[:, :k] >= sizes.entries
    above, equal = after[q] > logit[:, None], after[q] == logit[:, None]
    found = Scores(
        q,
        scores.token,
        logit,
        1 + above.sum(axis=1),
        equal.sum(axis=1) - hit,
        (above & padding[q]).sum(axis=1),
        (equal & padding[q]).sum(axis=1) - (hit & (scores.token >= sizes.entries)),
        np.ones(len(q), np.bool_),
    )
    if by.mode == "truncate":
        return _beyond(found, hit, padding, k, sizes)
    return _with_tail(found, hit, listed, scores, k, sizes)


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    highest = logits[:, :1]
    return np.asarray(highest[:, 0] + np.log(np.exp(logits - highest).sum(axis=1)))


def _beyond(found: Scores, hit: np.ndarray, padding: np.ndarray, k: int, sizes: Sizes) -> Scores:
    """Tokens of probability 0 share the place after the k."""
    out, inside = ~hit, padding.sum(axis=1)[found.query]
    lost = found.token >= sizes.entries
    found.ties[out] = sizes.vocab - k - 1
    found.padding_ties[out] = (sizes.vocab - sizes.entries - inside - lost)[out]
    return found


def _with_tail(
    found: Scores, hit: np.ndarray, listed: Listed, scores: Scores, k: int, sizes: Sizes
) -> Scores:
    """Ranks among the k and all the others."""
    miss = np.flatnonzero(~hit)
    q = scores.query[miss]
    own = scores.logit[miss, None]
    padding = listed.tokens[:, :k] >= sizes.entries
    was_above, was_equal = listed.logits[q, :k] > own, listed.logits[q, :k] == own
    # What was counted before, less the k as they were, and the k as they are now.
    found.rank[miss] += scores.rank[miss] - 1 - was_above.sum(axis=1)
    found.ties[miss] += scores.ties[miss] - was_equal.sum(axis=1)
    found.padding_above[miss] += scores.padding_above[miss] - (was_above & padding[q]).sum(axis=1)
    found.padding_ties[miss] += scores.padding_ties[miss] - (was_equal & padding[q]).sum(axis=1)
    found.exact[miss] = scores.exact[miss]
    if listed.logits.shape[1] == k:
        below = np.flatnonzero(hit)  # nothing is known of the others but that they are lower
        below = below[found.logit[below] < listed.logits[scores.query[below], -1]]
    else:
        below = np.flatnonzero(hit & (found.logit <= listed.logits[scores.query, k]))
    return _below(found, below, listed, k, sizes)


def _below(found: Scores, rows: np.ndarray, listed: Listed, k: int, sizes: Sizes) -> Scores:
    """Of the k, those that others may be above or beside now."""
    q, own = found.query[rows], found.logit[rows, None]
    tail, padding = listed.logits[q, k:], listed.tokens[q, k:] >= sizes.entries
    above, equal = tail > own, tail == own
    found.rank[rows] += above.sum(axis=1)
    found.ties[rows] += equal.sum(axis=1)
    found.padding_above[rows] += (above & padding).sum(axis=1)
    found.padding_ties[rows] += (equal & padding).sum(axis=1)
    if others := sizes.vocab - listed.logits.shape[1]:
        lower = rows[own[:, 0] < listed.logits[q, -1]]
        found.exact[lower] = False
        found.ties[lower] += others
    return found
