"""Spreads, intervals, tests and corrections, vectorised over checkpoints.

Axis letters: `c` checkpoints, `s` option-order seeds, `p` prompts, `n` observations, `b`
bootstrap resamples. NaN marks a missing observation where a function says so.
"""

import warnings
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.frames.expressions import Floats

SIGNIFICANCE = 0.01
"""Level of the published test."""
FEWEST_CLUSTERS = 10
"""Clusters (sentences, terms, pairs, examples) below which nothing is given an interval.

Percentiles of resamples are too narrow for few clusters: from two sentences they gave 0.852 [0.851
to 0.853]. That ten are enough is a convention; Cameron, Gelbach and Miller 2008 begin with five to
thirty and find rejections too frequent there."""

_COLUMNS = 16

Missing = Literal["propagate", "omit"]


class TestResult(NamedTuple):
    """One test per checkpoint; every field is (c,)."""

    statistic: Floats
    p: Floats
    """Two-sided."""
    n1: Floats
    n2: Floats
    effect: Floats
    """In [0, 1]; 0.5 is no difference."""


class SeedMean(NamedTuple):
    """Mean over seeds and spread between them, each (c,)."""

    mean: Floats
    sd: Floats
    seeds: NDArray[np.int64]


class Interval(NamedTuple):
    """Percentile interval, each (c,)."""

    low: Floats
    high: Floats


def mean_present(values: ArrayLike, axis: int) -> Floats:
    """Mean of what is not NaN along an axis; NaN where nothing is left, never 0.

    >>> mean_present([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]], axis=1).tolist()
    [2.0, nan]
    """
    x = np.asarray(values, np.float64)
    if x.shape[axis] and not np.isnan(x).any():
        complete: Floats = x.mean(axis=axis)
        return complete
    with np.errstate(invalid="ignore"):
        mean: Floats = np.nansum(x, axis=axis) / np.count_nonzero(~np.isnan(x), axis=axis)
    return mean


def seed_mean(values: ArrayLike) -> SeedMean:
    """Mean over seeds and standard deviation between them (ddof 1).

    `values` is (c, s), one number per seed; a seed without a value (NaN) is left out and `seeds`
    counts the others. The deviation of fewer than two seeds is NaN.

    >>> seed_mean([[1.0, 2.0, 3.0]]).sd.tolist()
    [1.0]
    """
    x = np.asarray(values, np.float64)
    n = np.count_nonzero(~np.isnan(x), axis=1)
    mean = mean_present(x, axis=1)
    squares = np.nansum((x - mean[:, None]) ** 2, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.where(n > 1, np.sqrt(squares / (n - 1)), np.nan)
    return SeedMean(mean, sd, n)


def mann_whitney(a: ArrayLike, b: ArrayLike, *, missing: Missing = "propagate") -> TestResult:
    """Mann–Whitney U test of two independent samples, two-sided, normal approximation.

    The variance carries the tie correction and the statistic the continuity correction. All
    values equal gives p = 1.

    Parameters
    ----------
    a, b
        (c, n1) and (c, n2) observations.
    missing
        `propagate` gives NaN for a checkpoint with a NaN observation; `omit` leaves it out.

    Returns
    -------
    TestResult
        U of the first sample, and U / (n1 n2) as the effect: the chance that an observation of
        `a` is greater than one of `b`, ties counted half. NaN where a sample is empty.

    References
    ----------
    arXiv 2506.01709, §2, App. D. Computed by `scipy.stats.mannwhitneyu`, never its exact method.

    Examples
    --------
    >>> result = mann_whitney([[1.0, 2.0, 4.0]], [[3.0, 5.0]])
    >>> result.statistic.tolist(), round(float(result.effect[0]), 4)
    ([1.0], 0.1667)
    """
    from scipy import stats

    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with warnings.catch_warnings():
        # An empty sample is a NaN in the result here; SciPy warns of each.
        warnings.simplefilter("ignore")
        result = stats.mannwhitneyu(
            x,
            y,
            axis=1,
            alternative="two-sided",
            method="asymptotic",
            use_continuity=True,
            nan_policy=missing,
        )
    return _test_result(result.statistic, result.pvalue, _count(x), _count(y))


def wilcoxon(differences: ArrayLike, *, missing: Missing = "propagate") -> TestResult:
    """Wilcoxon signed-rank test of paired differences, two-sided, normal approximation.

    Zero differences are dropped before ranking; if all are zero p = 1.

    Parameters
    ----------
    differences
        (c, n): first minus second of each pair.
    missing
        As for `mann_whitney`.

    Returns
    -------
    TestResult
        The sum of the ranks of the positive differences, and its share of all ranks as the
        effect (0.5 where all differences are zero). `n1` and `n2` count the pairs. NaN where
        there is no pair.

    References
    ----------
    Our addition to arXiv 2506.01709, whose samples are pairs; `scipy.stats.wilcoxon`.

    Examples
    --------
    >>> result = wilcoxon([[1.0, 2.0, -3.0, 4.0]])
    >>> result.statistic.tolist(), result.effect.tolist()
    ([7.0], [0.7])
    """
    from scipy import stats

    d = np.asarray(differences, np.float64)
    n = _count(d)
    if d.shape[1] == 0:
        nan = np.full(len(d), np.nan)
        return TestResult(nan, nan, n, n, nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # "greater" returns the positive rank sum; "two-sided" the smaller sum, without its sign.
        result = stats.wilcoxon(
            d, axis=1, alternative="greater", method="asymptotic", nan_policy=missing
        )
    nonzero = np.count_nonzero((d != 0) & ~np.isnan(d), axis=1)
    usable = (n > 0) & (missing == "omit" or n == d.shape[1])
    flat = usable & (nonzero == 0)
    p = np.where(flat, 1.0, 2 * stats.norm.sf(np.abs(result.zstatistic)))
    positive = np.where(usable, result.statistic, np.nan)
    with np.errstate(invalid="ignore"):
        effect = np.where(flat, 0.5, positive / (nonzero * (nonzero + 1) / 2))
    return TestResult(positive, np.where(usable, p, np.nan), n, n, effect)


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """P values adjusted for the false discovery rate over a family of tests.

    `p` is (n,); NaN stays NaN and does not count as a test. The adjusted value of the i-th
    smallest is the least of :math:`p_{(j)}\\,n/j` over :math:`j\\ge i`, at most 1.

    References
    ----------
    Benjamini and Hochberg 1995; `scipy.stats.false_discovery_control`.

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.04, np.nan, 0.03]).round(4).tolist()
    [0.03, 0.04, nan, 0.04]
    """
    from scipy import stats

    values = np.array(p, np.float64)
    tested = ~np.isnan(values)
    if tested.any():
        values[tested] = stats.false_discovery_control(values[tested])
    return values


def cluster_counts(clusters: NDArray[np.int64], *, resamples: int, seed: int) -> Floats:
    """How often each prompt counts in each bootstrap resample of its cluster.

    Clusters are drawn with replacement, as many as there are; a prompt counts as often as its
    cluster was drawn. `clusters` is (p,) with values 0..k-1; the result is (b, p) float64. The
    same seed gives the same counts.

    >>> counts = cluster_counts(np.array([0, 0, 1]), resamples=4, seed=0)
    >>> bool((counts[:, 0] == counts[:, 1]).all()), set(counts[:, [0, 2]].sum(1).tolist())
    (True, {2.0})
    """
    k = int(clusters.max(initial=-1)) + 1
    if k == 0:
        return np.zeros((resamples, 0))
    draws = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), size=resamples)
    return draws[:, clusters].astype(np.float64)


def bootstrap_means(values: Floats, counts: Floats) -> Floats:
    """Mean over seeds of the mean over prompts, in every resample.

    `values` is (c, s, p) with NaN for a missing observation, `counts` (b, p) from
    `cluster_counts`; the result is (b, c), NaN where a resample drew no observation. What a
    checkpoint gets does not depend on what others lack.
    """
    missing = np.isnan(values)
    partial = missing.any(axis=(1, 2))
    if partial.any() and not partial.all():
        means = np.empty((len(counts), len(values)))
        for own in (partial, ~partial):
            means[:, own] = bootstrap_means(values[own], counts)
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

    BLAS adds in another order where a matrix has few columns, so they are made many: a checkpoint
    has the same sums, to the last bit, beside one other as beside a hundred.
    """
    c, s, p = values.shape
    columns = np.zeros((p, -(-c * s // _COLUMNS) * _COLUMNS))
    columns[:, : c * s] = values.reshape(c * s, p).T
    return (counts @ columns)[:, : c * s].reshape(len(counts), c, s)


def percentile_interval(draws: Floats, *, clusters: ArrayLike, level: float = 0.95) -> Interval:
    """Central interval of bootstrap draws (b, c), NaN where they resample too few clusters.

    `clusters`, () or (c,), are the pieces of data that were resampled; see `with_enough`.
    """
    return with_enough(central_interval(draws, level=level), clusters)


def central_interval(draws: Floats, *, level: float = 0.95) -> Interval:
    """Central interval of draws (b, c) of anything; draws without a value are left out."""
    bounds = [(1 - level) / 2, (1 + level) / 2]
    if draws.shape[0] == 0:
        return Interval(*np.full((2, draws.shape[1]), np.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a checkpoint with no value at all
        quantile = np.nanquantile if np.isnan(draws).any() else np.quantile
        return Interval(*quantile(draws, bounds, axis=0))


def with_enough(interval: Interval, clusters: ArrayLike) -> Interval:
    """The interval (c,), NaN where it rests on fewer than `FEWEST_CLUSTERS` clusters.

    >>> with_enough(Interval(np.zeros(2), np.ones(2)), [9, 10]).high.tolist()
    [nan, 1.0]
    """
    few = np.asarray(clusters) < FEWEST_CLUSTERS
    return Interval(np.where(few, np.nan, interval.low), np.where(few, np.nan, interval.high))


def cluster_numbers(values: Floats, clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Clusters that have an observation, (c,): `values` is (c, s, p) with NaN where there is none.

    >>> values = np.array([[[1.0, 2.0, 3.0]], [[1.0, 2.0, np.nan]]])
    >>> cluster_numbers(values, np.array([0, 0, 1])).tolist()
    [2, 1]
    """
    present: NDArray[np.bool_] = np.logical_not(np.isnan(values)).any(axis=1)
    return np.array([len(np.unique(clusters[own])) for own in present], np.int64)


def rank_biserial(effect: ArrayLike) -> Floats:
    """Effect size of a rank test from its share, in [-1, 1]; 0 is no difference.

    Of Mann–Whitney :math:`2U/(n_1n_2)-1`, the chance that the first sample is the greater minus
    that of the second (Cliff's δ); of Wilcoxon the share of the positive ranks minus that of the
    negative ones.

    References
    ----------
    Cliff 1993, Psychol. Bull. 114; Kerby 2014, Compr. Psychol. 3.

    Examples
    --------
    >>> rank_biserial([0.5, 1.0, 0.25]).tolist()
    [0.0, 1.0, -0.5]
    """
    correlation: Floats = 2 * np.asarray(effect, np.float64) - 1
    return correlation


def _count(x: Floats) -> Floats:
    count: Floats = np.count_nonzero(~np.isnan(x), axis=1).astype(np.float64)
    return count


def _test_result(statistic: ArrayLike, p: ArrayLike, n1: Floats, n2: Floats) -> TestResult:
    u = np.asarray(statistic, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return TestResult(u, np.asarray(p, np.float64), n1, n2, u / (n1 * n2))
