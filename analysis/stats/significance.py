"""Spreads, intervals, tests and corrections, vectorised over checkpoints.

Axis letters: `c` checkpoints, `s` option-order seeds, `p` prompts, `n` observations, `b`
bootstrap resamples. NaN marks a missing observation if the function documents it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.frames.expressions import Floats

SIGNIFICANCE = 0.01
"""Level of the published test."""


class TestResult(NamedTuple):
    """One test per checkpoint; every field is (c,)."""

    statistic: Floats
    p: Floats
    """Two-sided."""
    n1: Floats
    n2: Floats
    effect: Floats
    """Between 0 and 1; 0.5 is no difference."""


class SeedMean(NamedTuple):
    """Mean over seeds and spread between them, each (c,)."""

    mean: Floats
    sd: Floats
    seeds: NDArray[np.int64]


def mean_present(values: ArrayLike, axis: int) -> Floats:
    """Mean along an axis without NaN; NaN if there is no value.

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

    `values` is (c, s), one number per seed; a seed without a value (NaN) is excluded, and `seeds`
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


def mann_whitney(a: ArrayLike, b: ArrayLike) -> TestResult:
    """Mann–Whitney U test of two independent samples, two-sided, normal approximation.

    The variance carries the tie correction and the statistic the continuity correction. All
    values equal gives p = 1.

    Parameters
    ----------
    a, b
        (c, n1) and (c, n2) observations; NaN is left out.

    Returns
    -------
    TestResult
        U of the first sample, and U / (n1 n2) as the effect: the probability that an observation
        of `a` is greater than one of `b`, ties counted half. NaN if a sample is empty.

    References
    ----------
    arXiv 2506.01709, §2, App. D: the asymptotic method of `scipy.stats.mannwhitneyu`.

    Examples
    --------
    >>> result = mann_whitney([[1.0, 2.0, 4.0]], [[3.0, 5.0]])
    >>> result.statistic.tolist(), round(float(result.effect[0]), 4)
    ([1.0], 0.1667)
    """
    from scipy.special import ndtr

    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    n1, n2 = _count(x), _count(y)
    ranks, ties = _ranks(np.concatenate([x, y], axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        u = np.where(n1 > 0, np.nansum(ranks[:, : x.shape[1]], axis=1), np.nan)
        u = np.where(n2 > 0, u - n1 * (n1 + 1) / 2, np.nan)
        product, n = n1 * n2, n1 + n2
        error = np.sqrt(product / 12 * (n + 1 - ties / (n * (n - 1))))
        z = (np.abs(u - product / 2) - 0.5) / error
        p = np.where(error == 0, 1.0, np.minimum(2 * ndtr(-z), 1))
        return TestResult(u, np.where(np.isnan(u), np.nan, p), n1, n2, u / product)


def wilcoxon(differences: ArrayLike) -> TestResult:
    """Wilcoxon signed-rank test of paired differences, two-sided, normal approximation.

    Zero differences are dropped before ranking; if all are zero p = 1.

    Parameters
    ----------
    differences
        (c, n): first minus second of each pair; NaN is left out.

    Returns
    -------
    TestResult
        The sum of the ranks of the positive differences, and its share of all ranks as the
        effect (0.5 if all differences are zero). `n1` and `n2` are the number of pairs. NaN
        without a pair.

    References
    ----------
    Not in arXiv 2506.01709, whose samples are pairs. The asymptotic method of
    `scipy.stats.wilcoxon` without continuity correction.

    Examples
    --------
    >>> result = wilcoxon([[1.0, 2.0, -3.0, 4.0]])
    >>> result.statistic.tolist(), result.effect.tolist()
    ([7.0], [0.7])
    """
    from scipy.special import ndtr

    d = np.asarray(differences, np.float64)
    pairs, d = _count(d), np.where(d == 0, np.nan, d)
    n, (ranks, ties) = _count(d), _ranks(np.abs(d))
    positive, total = np.nansum(ranks * (d > 0), axis=1), n * (n + 1) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt((n * (n + 1) * (2 * n + 1) - ties / 2) / 24)
        p = np.where(n == 0, 1.0, 2 * ndtr(-np.abs(positive - total / 2) / error))
        effect = np.where(n == 0, 0.5, positive / total)
    found = (np.where(pairs == 0, np.nan, each) for each in (positive, p, effect))
    statistic, p, effect = found
    return TestResult(statistic, p, pairs, pairs, effect)


def _ranks(values: Floats) -> tuple[Floats, Floats]:
    """Ranks (c, n) within rows, the mean of those of equal values, NaN of NaN; and Σ t³ − t (c,).

    t are the numbers of equal values.
    """
    order = np.argsort(values, axis=1)
    ascending = np.take_along_axis(values, order, axis=1)
    begins = np.ones(values.shape, bool)
    begins[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=values.size)
    means = np.repeat(starts % max(1, values.shape[1]) + (sizes + 1) / 2, sizes)
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, means.reshape(values.shape), axis=1)
    ties = np.zeros(values.shape)
    ties.reshape(-1)[starts] = sizes.astype(np.float64) ** 3 - sizes
    return np.where(np.isnan(values), np.nan, ranks), ties.sum(axis=1)


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """P values adjusted for the false discovery rate over a family of tests.

    `p` is (n,); NaN stays NaN and does not count as a test. The adjusted value of the i-th
    smallest is the least of :math:`p_{(j)}\\,n/j` over :math:`j\\ge i`, at most 1.

    References
    ----------
    Benjamini and Hochberg 1995.

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.04, np.nan, 0.03]).round(4).tolist()
    [0.03, 0.04, nan, 0.04]
    """
    values = np.array(p, np.float64)
    tested = np.flatnonzero(~np.isnan(values))
    n = len(tested)
    descending = tested[np.argsort(values[tested], kind="stable")[::-1]]
    scaled = values[descending] * (n / np.arange(n, 0, -1))
    values[descending] = np.minimum(np.minimum.accumulate(scaled), 1)
    return values


def holm(p: ArrayLike) -> Floats:
    """Holm's adjusted p values, for any dependence between tests; (n,).

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def rank_biserial(effect: ArrayLike) -> Floats:
    """Effect size of a rank test from its share, between −1 and 1; 0 is no difference.

    For Mann–Whitney :math:`2U/(n_1n_2)-1`, the probability that the first sample is greater minus
    that of the second (Cliff's δ). For Wilcoxon, the share of the positive ranks minus that of the
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
