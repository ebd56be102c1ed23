"""Pearson correlations and coefficients of variation, vectorised; NumPy only.

Axis letters: `m` checkpoints, `t` professions.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import Interval, with_enough, with_width
from logitbank.analysis.stats.shares import Z95

CONSTANT = 16 * float(np.finfo(np.float64).eps)
"""Numbers within this fraction of the largest are equal up to rounding."""


class Correlation(NamedTuple):
    """A correlation and its sample size."""

    r: float
    low: float
    """Ends of its 95 % interval, see `correlation_interval`."""
    high: float
    n: int
    """Pairs of finite values."""
    excluded: int
    """Pairs with an infinite or a missing value."""


def pearson(x: ArrayLike, y: ArrayLike) -> Correlation:
    r"""Pearson correlation :math:`\frac{\sum(x-\bar x)(y-\bar y)}{|x-\bar x||y-\bar y|}` of (t,).

    Pairs in which either value is not finite are excluded and counted. NaN for fewer than two
    pairs, and if one side is constant up to rounding.

    >>> found = pearson([1.0, 2.0, 3.0, np.inf], [2.0, 4.0, 6.0, 8.0])
    >>> round(found.r, 12), found.n, found.excluded
    (1.0, 3, 1)
    >>> pearson([1.0, 2.0], [5.0, 5.0]).r
    nan
    """
    both = np.stack([np.asarray(x, np.float64), np.asarray(y, np.float64)])
    finite = np.isfinite(both).all(axis=0)
    n = int(np.count_nonzero(finite))
    r = float(pearson_matrix(both if n == both.shape[1] else both[:, finite])[0, 1])
    low, high = correlation_interval(r, n)
    return Correlation(r, float(low), float(high), n, both.shape[1] - n)


def correlation_interval(r: ArrayLike, n: int) -> Interval:
    r"""95 % interval of Pearson correlations over n pairs, :math:`\tanh(\mathrm{artanh}\,r\pm
    1.96/\sqrt{n-3})`.

    `scipy.stats.pearsonr(...).confidence_interval()`, vectorised. NaN for fewer than ten pairs, and
    if r is 1 or −1.

    References
    ----------
    Fisher 1921, Metron 1. It assumes that both sides are normal.

    Examples
    --------
    >>> low, high = correlation_interval(0.5, 20)
    >>> round(float(low), 3), round(float(high), 3)
    (0.074, 0.772)
    """
    half = Z95 / np.sqrt(max(n - 3, 1))
    with np.errstate(divide="ignore"):
        z = np.arctanh(np.asarray(r, np.float64))
    return with_enough(with_width(Interval(np.tanh(z - half), np.tanh(z + half))), n)


def pearson_matrix(rows: ArrayLike) -> Floats:
    """Pearson correlation of every two rows of (m, t) finite values: (m, m), symmetric.

    The diagonal is 1. NaN for fewer than two columns, and for a row that is constant up to rounding
    (`CONSTANT`), whose noise would correlate by chance.

    >>> pearson_matrix([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [4.0, 4.0, 4.0]]).round(12)[0].tolist()
    [1.0, -1.0, nan]
    """
    x = np.asarray(rows, np.float64)
    if x.shape[1] < 2:
        return np.full((len(x), len(x)), np.nan)
    # The mean of equal numbers may be rounded, so the numbers themselves are compared.
    constant = _constant(x, axis=1)
    centred = x - x.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        centred /= np.abs(centred).max(axis=1, keepdims=True)  # ratios of 1e200 have squares too
        centred /= np.sqrt(np.einsum("mt,mt->m", centred, centred))[:, None]
    centred[constant] = np.nan
    # Not `@`: threads of BLAS cost more than they save for matrices this small.
    r: Floats = np.clip(np.einsum("at,bt->ab", centred, centred), -1.0, 1.0)
    np.fill_diagonal(r, np.where(constant, np.nan, 1.0))
    return r


def variation(values: ArrayLike) -> Floats:
    r"""Coefficient of variation over checkpoints: :math:`\mathrm{SD}_{\mathrm{ddof}=0}/\mathrm{mean}`.

    `values` is (m, …), the result (…). Multiplying a column by a positive constant changes
    nothing. 0 if the values are equal up to rounding (`CONSTANT`), as those of identical
    checkpoints. NaN if a value is infinite or missing, or the mean is zero.

    References
    ----------
    arXiv 2211.14639, §3; the population deviation is that of its code.

    Examples
    --------
    >>> variation([[1.0, 2.0], [3.0, np.inf]]).tolist()
    [0.5, nan]
    """  # noqa: E501
    x = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = x.std(axis=0, ddof=0) / x.mean(axis=0)
        flat = _constant(x, axis=0) & np.isfinite(ratio)
    return np.where(flat, 0.0, ratio)


def _constant(x: Floats, *, axis: int) -> NDArray[np.bool_]:
    """Whether the values along an axis are equal up to rounding."""
    low, high = x.min(axis=axis), x.max(axis=axis)
    with np.errstate(invalid="ignore", over="ignore"):
        same: NDArray[np.bool_] = high - low <= CONSTANT * np.maximum(np.abs(low), np.abs(high))
    return same
