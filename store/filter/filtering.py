"""Scores of one deposit after a filter: pure arithmetic on arrays."""

from typing import NamedTuple

import numpy as np

from logitbank.store.filter.filters import Filter
from logitbank.store.format.schema import COUNTS


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
    ranked: bool = True
    """Whether they are in the order of exact ranks; rounded logits may have another order."""


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
    """Entries of the tokenizer; outputs from here on are padding."""


def filtered(
    listed: Listed, scores: Scores, by: Filter, sizes: Sizes, *, ranks: bool = True
) -> Scores:
    """Scores after a filter: logits become log-probabilities plus the row's log-sum-exp.

    Ranks count the new probabilities. If a filter keeps the tail, one of the k tokens may fall to
    the tokens after them. Its rank is then only known to lie in an interval: `exact` is false, and
    `rank` to `rank + ties` are its bounds. Where the entries are not in the order of exact ranks,
    no rank is exact.

    Parameters
    ----------
    scores
        Before the filter; a query's entries in any order.
    ranks
        Count ranks; if not, they and what belongs to them are those before the filter.
    """
    before, after = best_logits(listed, by)
    place, query = _places(listed, scores), scores.query
    hit, miss = np.flatnonzero(place >= 0), np.flatnonzero(place < 0)
    logit = scores.logit.copy()
    logit[hit] = after[place[hit], query[hit]]
    if by.mode == "truncate":
        logit[miss] = -np.inf
    if not ranks:
        return scores._replace(logit=logit)
    exact = np.ones(len(query), np.bool_)
    padding = (listed.tokens >= sizes.entries).T
    counts = np.zeros((4, len(query)), np.int64)  # rank, ties, padding_above, padding_ties
    counts[:, hit] = _count(after, padding, query[hit], logit[hit])
    counts[0, hit] += 1
    counts[1, hit] -= 1  # an entry equals itself
    counts[3, hit] -= padding[place[hit], query[hit]]
    if by.mode == "truncate":
        counts[:, miss] = _zero_probability_counts(listed, scores, miss, sizes)
    else:
        counts[:, miss] = [getattr(scores, name)[miss] for name in COUNTS]
        exact[miss] = scores.exact[miss]
        # The k were all above, and still are where the lowest of them is above.
        moved = miss[scores.logit[miss] >= after.min(axis=0)[query[miss]]]
        tied = miss[scores.logit[miss] == before[-1][query[miss]]]
        recounted = np.union1d(moved, tied)
        for sign, values in ((-1, before), (1, after)):
            change = _count(values, padding, query[recounted], logit[recounted])
            counts[:, recounted] += sign * change
        below = hit[logit[hit] <= before[-1][query[hit]]]
        unlisted = sizes.vocab - listed.tokens.shape[1]
        exact[below] = not unlisted
        counts[1, below] += unlisted
    rank, ties, above, equal = counts
    return Scores(query, scores.token, logit, rank, ties, above, equal, exact & listed.ranked)


def best_logits(listed: Listed, by: Filter) -> tuple[np.ndarray, np.ndarray]:
    """Logits (k, n) of the listed entries, before and after a filter, in the row's own scale."""
    before = np.ascontiguousarray(listed.logits.T)
    after = by.log_shares(before)
    after += listed.logsumexp if by.mode == "truncate" else _logsumexp(before)  # kept: their mass
    return before, after


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    highest = logits[0]
    return np.asarray(highest + np.log(np.exp(logits - highest).sum(axis=0)))


def _places(listed: Listed, scores: Scores) -> np.ndarray:
    """Positions of entries among the k: their ranks, except for ties and later counts."""
    k = listed.tokens.shape[1]
    place = np.where(scores.rank <= k, scores.rank - 1, -1)
    sure = scores.exact & (scores.ties == 0)
    unsure = np.flatnonzero(~sure) if listed.ranked else np.arange(len(place))
    same = listed.tokens[scores.query[unsure]] == scores.token[unsure, None]
    place[unsure] = np.where(same.any(axis=1), same.argmax(axis=1), -1)
    return place


def _count(
    values: np.ndarray, padding: np.ndarray, query: np.ndarray, logit: np.ndarray
) -> np.ndarray:
    """How many of a query's values (k, n) are above and equal to each logit (m,).

    Returns (4, m): above, equal, and of both how many are padding.
    """
    counts = np.zeros((4, len(query)), np.int64)
    for value, is_padding in zip(values, padding, strict=True):
        above, equal = value[query] > logit, value[query] == logit
        counts[0] += above
        counts[1] += equal
        if is_padding.any():
            counts[2] += above & is_padding[query]
            counts[3] += equal & is_padding[query]
    return counts


def _zero_probability_counts(
    listed: Listed, scores: Scores, miss: np.ndarray, sizes: Sizes
) -> np.ndarray:
    """Counts (4, m) of tokens of probability 0, which share the place after the k."""
    k = listed.tokens.shape[1]
    padding = (listed.tokens >= sizes.entries).sum(axis=1)[scores.query[miss]]
    is_padding = scores.token[miss] >= sizes.entries
    counts = np.empty((4, len(miss)), np.int64)
    counts[0], counts[1] = 1 + k, sizes.vocab - k - 1
    counts[2], counts[3] = padding, sizes.vocab - sizes.entries - padding - is_padding
    return counts
