"""Shares of examples, with their standard error and interval."""

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, Interval, with_enough
from logitbank.wording import counted

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def standard_error(share: pl.Expr, count: pl.Expr) -> pl.Expr:
    r"""Standard error of a share of `count` examples, :math:`\sqrt{p(1-p)/(N-1)}` (ddof 1).

    NaN for fewer than two examples.

    >>> frame = pl.DataFrame({"p": [0.5, 1.0], "n": [5, 1]})
    >>> frame.select(standard_error(pl.col("p"), pl.col("n"))).to_series().to_list()
    [0.25, nan]
    """
    spread = (share * (1 - share) / (count - 1)).sqrt()
    return pl.when(count > 1).then(spread).otherwise(float("nan"))


def wilson(share: ArrayLike, count: ArrayLike) -> Interval:
    r"""95 % score interval of a share, which stays within [0, 1] and has a width at 0 and 1.

    With :math:`z=1.96`: :math:`\frac{p+z^2/2n\pm z\sqrt{p(1-p)/n+z^2/4n^2}}{1+z^2/n}`. `share`
    and `count` are (c,); NaN where there are no examples. Where ties count half, it is a little
    too wide.

    References
    ----------
    Wilson 1927, J. Am. Stat. Assoc. 22.

    Examples
    --------
    >>> low, high = wilson([0.0, 0.5], [10, 10])
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.237], [0.278, 0.763])
    """
    p, n = np.asarray(share, np.float64), np.asarray(count, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        z2 = Z95**2 / n
        centre = (p + z2 / 2) / (1 + z2)
        half = Z95 * np.sqrt(p * (1 - p) / n + z2 / (4 * n)) / (1 + z2)
    # centre - half is 1e-17 at a share of 0, where the two are the same number; so at 1 above.
    low: Floats = np.where((p == 0) & (n > 0), 0, np.clip(centre - half, 0, 1))
    high: Floats = np.where((p == 1) & (n > 0), 1, np.clip(centre + half, 0, 1))
    return Interval(low, high)


def if_enough(bound: pl.Expr, count: pl.Expr) -> pl.Expr:
    """A bound of an interval, NaN where it rests on fewer than `FEWEST_CLUSTERS`."""
    return pl.when(count >= FEWEST_CLUSTERS).then(bound).otherwise(float("nan"))


def too_few(clusters: int, noun: str) -> str:
    """Why there is no interval.

    >>> too_few(2, "sentence")
    'no interval from 2 sentences, fewer than 10'
    """
    return f"no interval from {counted(clusters, noun)}, fewer than {FEWEST_CLUSTERS}"


def with_wilson(table: pl.DataFrame, share: str, count: str) -> pl.DataFrame:
    """The table with columns `low` and `high` after it, NaN where `count` is too few."""
    interval = wilson(table[share].cast(pl.Float64).fill_null(float("nan")), table[count])
    interval = with_enough(interval, table[count])
    return table.with_columns(low=interval.low, high=interval.high)
