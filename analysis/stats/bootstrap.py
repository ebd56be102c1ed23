"""Bootstrap resamples of clusters, and their intervals."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.significance import mean_present

FEWEST_CLUSTERS = 10
"""Minimum number of clusters (sentences, terms, pairs, examples) of an interval.

Percentiles of resamples are too narrow for few clusters: two sentences gave 0.852 [0.851, 0.853].
Ten is a convention; Cameron, Gelbach and Miller 2008 find too many rejections with five
to thirty."""
LEVEL = 0.95
"""Level of every interval."""
_COLUMNS = 16
"""Columns are padded to a multiple of this; see `_weighted_sums`."""


class Interval(NamedTuple):
    """Interval of a number at every checkpoint, each (c,)."""

    low: Floats
    high: Floats


@lru_cache(maxsize=1)
def cluster_counts(k: int, *, resamples: int, seed: int) -> Floats:
    """Number of draws of each of k clusters in each bootstrap resample, (b, k) float64.

    In each resample, k clusters are drawn with replacement. It depends only on the seed. The last
    ones are kept for the next checkpoints: do not change them.

    >>> set(cluster_counts(3, resamples=4, seed=0).sum(axis=1).tolist())
    {3.0}
    """
    draws = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), size=resamples)
    return draws.astype(np.float64)


def bootstrap_means(values: Floats, counts: Floats) -> Floats:
    """Mean over seeds of the mean over prompts, in every resample.

    `values` is (c, s, p) with NaN for a missing observation, `counts` (b, p) those of the clusters
    of prompts; the result is (b, c), NaN if a resample drew no observation. The result of a
    checkpoint does not depend on the others.
    """
    missing = np.isnan(values)
    partial = missing.any(axis=(1, 2))
    if partial.any() and not partial.all():
        means = np.empty((len(counts), len(values)))
        for group in (partial, ~partial):
            means[:, group] = bootstrap_means(values[group], counts)
        return means
    if not partial.any():
        # Every seed has the same denominators, so the seeds may be averaged first.
        values = values.mean(axis=1, keepdims=True)
        totals = counts.sum(axis=1)[:, None, None]
    else:
        totals = _weighted_sums(counts, (~missing).astype(np.float64))
        values = np.where(missing, 0.0, values)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = _weighted_sums(counts, values) / totals
    return mean_present(means, axis=2)


def _weighted_sums(counts: Floats, values: Floats) -> Floats:
    """(b, p) and (c, s, p) to (b, c, s).

    BLAS adds in another order if a matrix has few columns. With padded columns, the sums of a
    checkpoint are equal to the last bit for any number of checkpoints.
    """
    c, s, p = values.shape
    columns = np.zeros((p, -(-c * s // _COLUMNS) * _COLUMNS))
    columns[:, : c * s] = values.reshape(c * s, p).T
    return (counts @ columns)[:, : c * s].reshape(len(counts), c, s)


def with_width(interval: Interval) -> Interval:
    """The interval (c,), NaN if both ends are equal up to rounding.

    >>> with_width(Interval(np.array([0.2, 0.2]), np.array([0.2, 0.3]))).low.tolist()
    [nan, 0.2]
    """
    low, high = interval
    rounding = 1e-14 + 1e-12 * np.maximum(np.abs(low), np.abs(high))
    flat = ~(high - low > rounding)
    return Interval(np.where(flat, np.nan, low), np.where(flat, np.nan, high))


def t_quantile(degrees: ArrayLike) -> Floats:
    """Half the width of a 95 % t interval in standard errors; of one degree of freedom below 1.

    >>> t_quantile([9, 99]).round(3).tolist()
    [2.262, 1.984]
    """
    from scipy.special import stdtrit

    return np.asarray(stdtrit(np.maximum(degrees, 1), (1 + LEVEL) / 2))


def with_enough(interval: Interval, clusters: ArrayLike) -> Interval:
    """The interval (c,), NaN for fewer than `FEWEST_CLUSTERS` clusters.

    >>> with_enough(Interval(np.zeros(2), np.ones(2)), [9, 10]).high.tolist()
    [nan, 1.0]
    """
    few = np.asarray(clusters) < FEWEST_CLUSTERS
    return Interval(np.where(few, np.nan, interval.low), np.where(few, np.nan, interval.high))
