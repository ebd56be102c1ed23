"""Scores of one deposit after a filter: pure arithmetic on arrays."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from logitbank.store.filter.filters import Filter

AT_ONCE = 128
"""Queries whose rows, or tails of rows, are in memory at once: those of one inner chunk."""
_CELLS = 2**20
"""Entries of tails that are compared at once: 13 MB."""


class Listed(NamedTuple):
    """The highest entries of n queries, best first."""

    tokens: np.ndarray
    """(n, k) int32."""
    logits: np.ndarray
    """(n, k) float64."""
    logsumexp: np.ndarray
    """(n,) float64, of the whole row."""
    total: int
    """Entries that the bank lists for each query; at least k."""
    tail: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """Tokens and logits (m, total − k) of some queries' entries after the k; the last of them the
    lowest, where the bank does not list all."""
    ranked: bool = True
    """Whether their order is that of exact ranks; that of rounded logits need not be."""


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


class _Filtered(NamedTuple):
    """The k entries of every query after the filter, and where the scores are among them."""

    after: np.ndarray
    """(k, n) logits: log-probability plus the row's log-sum-exp."""
    place: np.ndarray
    """(m,): place of an entry among the k, −1 where it is none of them."""
    logit: np.ndarray
    """(m,)."""


def filtered(
    listed: Listed, scores: Scores, by: Filter, sizes: Sizes, *, ranks: bool = True
) -> Scores:
    """Scores after a filter: logits become log-probabilities plus the row's log-sum-exp.

    Ranks count the new probabilities. A token that a filter which keeps the tail puts below all
    listed ones has a rank that is only known to lie in an interval: `exact` is false and `rank` to
    `rank + ties` are its bounds. Where the entries are not in the order of exact ranks, no rank is
    exact.

    Parameters
    ----------
    scores
        Before the filter; a query's entries in any order.
    ranks
        Count ranks; if not, they and what belongs to them are those before the filter.
    """
    before, after = best_logits(listed, by)
    place = _places(listed, scores)
    logit = scores.logit.copy()
    hit = np.flatnonzero(place >= 0)
    logit[hit] = after[place[hit], scores.query[hit]]
    if by.mode == "truncate":
        logit[place < 0] = -np.inf
    if not ranks:
        return scores._replace(logit=logit)
    changed = _Filtered(after, place, logit)
    start = Scores(scores.query, scores.token, logit, *_among(listed, changed, scores, hit, sizes))
    if by.mode == "truncate":
        ranked = _beyond(start, listed, place < 0, sizes)
    else:
        ranked = _with_tail(start, listed, before, changed, scores, sizes)
    return ranked._replace(exact=ranked.exact & listed.ranked)


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


def _among(
    listed: Listed, changed: _Filtered, scores: Scores, hit: np.ndarray, sizes: Sizes
) -> tuple[np.ndarray, ...]:
    """Rank, ties, both of padding, and exactness: of the k among themselves, zeros elsewhere."""
    k, after = len(changed.after), changed.after
    at = changed.place[hit], scores.query[hit]
    padding = (listed.tokens >= sizes.entries).T
    padded = bool(padding.any())
    counts = np.zeros((4, len(scores.query)), np.int64)
    logits = after[at]
    for other in range(k):
        value = after[other][at[1]]
        above, equal = value > logits, (value == logits) & (at[0] != other)
        counts[0, hit] += above
        counts[1, hit] += equal
        if padded:
            lost = padding[other][at[1]]
            counts[2, hit] += above & lost
            counts[3, hit] += equal & lost
    counts[0] += 1
    return (*counts, np.ones(len(scores.query), np.bool_))


def _beyond(counted: Scores, listed: Listed, out: np.ndarray, sizes: Sizes) -> Scores:
    """Rank tokens of probability 0, which share the place after the k."""
    k = listed.tokens.shape[1]
    padding = (listed.tokens >= sizes.entries).sum(axis=1)[counted.query[out]]
    lost = counted.token[out] >= sizes.entries
    counted.rank[out] = 1 + k
    counted.ties[out] = sizes.vocab - k - 1
    counted.padding_above[out] = padding
    counted.padding_ties[out] = sizes.vocab - sizes.entries - padding - lost
    return counted


def _with_tail(
    counted: Scores,
    listed: Listed,
    before: np.ndarray,
    changed: _Filtered,
    scores: Scores,
    sizes: Sizes,
) -> Scores:
    """Ranks among the k and all the others."""
    miss = np.flatnonzero(changed.place < 0)
    for name in ("rank", "ties", "padding_above", "padding_ties", "exact"):
        getattr(counted, name)[miss] = getattr(scores, name)[miss]
    # The k were all above, and are where the lowest of them still is.
    moved = miss[scores.logit[miss] >= changed.after.min(axis=0)[scores.query[miss]]]
    tied = miss[scores.logit[miss] == before[-1][scores.query[miss]]]
    _recount(counted, listed, before, changed, np.union1d(moved, tied), sizes)
    hit = np.flatnonzero(changed.place >= 0)
    below = hit[changed.logit[hit] <= before[-1][scores.query[hit]]]
    return _below(counted, below, listed, sizes) if len(below) else counted


def _recount(
    counted: Scores,
    listed: Listed,
    before: np.ndarray,
    changed: _Filtered,
    rows: np.ndarray,
    sizes: Sizes,
) -> None:
    """Subtract the k before the filter from the counts, and add the k after it."""
    query, logit = counted.query[rows], counted.logit[rows]
    padding = (listed.tokens >= sizes.entries).T
    for sign, values in ((-1, before), (1, changed.after)):
        for value, lost in zip(values, padding, strict=True):
            above, equal = value[query] > logit, value[query] == logit
            counted.rank[rows] += sign * above
            counted.ties[rows] += sign * equal
            counted.padding_above[rows] += sign * (above & lost[query])
            counted.padding_ties[rows] += sign * (equal & lost[query])


def _below(counted: Scores, rows: np.ndarray, listed: Listed, sizes: Sizes) -> Scores:
    """Rank those of the k that tokens of the tail may be above or beside now."""
    rows = rows[np.argsort(counted.query[rows], kind="stable")]
    queries, first = np.unique(counted.query[rows], return_index=True)
    ends = np.append(first, len(rows))
    # A tail is as long as the vocabulary where full rows are kept.
    few = max(1, _CELLS // max(1, listed.total - listed.tokens.shape[1]))
    for start in range(0, len(queries), max(AT_ONCE, few)):
        own = slice(start, min(start + max(AT_ONCE, few), len(queries)))
        tokens, logits = listed.tail(queries[own])
        for at in range(ends[own.start], ends[own.stop], few):
            part = rows[at : min(at + few, ends[own.stop])]
            place = np.searchsorted(queries[own], counted.query[part])
            _beside(counted, part, listed, sizes, tokens[place], logits[place])
    return counted


def _beside(
    counted: Scores,
    rows: np.ndarray,
    listed: Listed,
    sizes: Sizes,
    tokens: np.ndarray,
    tail: np.ndarray,
) -> None:
    """Count the tail (rows, total − k) of each row."""
    padding, logit = tokens >= sizes.entries, counted.logit[rows, None]
    above, equal = tail > logit, tail == logit
    counted.rank[rows] += above.sum(axis=1)
    counted.ties[rows] += equal.sum(axis=1)
    counted.padding_above[rows] += (above & padding).sum(axis=1)
    counted.padding_ties[rows] += (equal & padding).sum(axis=1)
    if others := sizes.vocab - listed.total:
        last = tail[:, -1] if tail.shape[1] else listed.logits[counted.query[rows], -1]
        lower = rows[logit[:, 0] < last]
        counted.exact[lower] = False
        counted.ties[lower] += others
