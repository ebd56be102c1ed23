"""Intervals of shares of examples."""

import numpy as np
from numpy.typing import ArrayLike

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import Interval

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(share: ArrayLike, count: ArrayLike, z: ArrayLike = Z95) -> Interval:
    r"""95 % score interval of a share, which is within [0, 1] and has a width at 0 and 1.

    With :math:`z=1.96`: :math:`\frac{p+z^2/2n\pm z\sqrt{p(1-p)/n+z^2/4n^2}}{1+z^2/n}`. `share`
    and `count` are (c,); NaN without examples. If ties count half, it is a little too
    wide. `z` is a quantile of t if the count is estimated from few units.

    References
    ----------
    Wilson 1927, J. Am. Stat. Assoc. 22.

    Examples
    --------
    >>> low, high = wilson([0.0, 0.5], [10, 10])
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.237], [0.278, 0.763])
    """
    p, n, z = (np.asarray(each, np.float64) for each in (share, count, z))
    with np.errstate(divide="ignore", invalid="ignore"):
        z2 = np.square(z) / n
        centre = (p + z2 / 2) / (1 + z2)
        half = z * np.sqrt(p * (1 - p) / n + z2 / (4 * n)) / (1 + z2)
    # At a share of 0 the two are equal, but centre - half is 1e-17; likewise at 1.
    low: Floats = np.where((p == 0) & (n > 0), 0, np.clip(centre - half, 0, 1))
    high: Floats = np.where((p == 1) & (n > 0), 1, np.clip(centre + half, 0, 1))
    return Interval(low, high)
