"""Where a curve over checkpoints changes its level: one change in mean, with its uncertainty."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from logitbank.analysis.expressions import Floats

SHORTEST = 2
"""Points on either side of a change; a level needs more than one."""
FEWEST = 6
"""Points of a curve for which a change is looked for."""
TINY = 1e-12
"""Sums of squares below this share of the curve's own are rounding."""


class ChangePoint(NamedTuple):
    """One change of level. Indices count points; the new level begins at `at`."""

    at: int
    mean_before: float
    mean_after: float
    p: float
    """Permutation p value against a curve whose points could come in any order."""
    probability: float
    """Posterior probability of exactly this place."""
    first: int
    """The smallest and largest place of a 95 % set."""
    last: int
    bic_over_line: float
    """BIC of a straight line over the points' order minus that of the change; positive favours the
    change."""


def change_point(
    values: ArrayLike, *, permutations: int = 2000, level: float = 0.95, seed: int = 0
) -> ChangePoint | None:
    r"""The most likely single change in mean of a curve, or None where there is none to look for.

    Under :math:`y_i\sim N(\mu_1,\sigma^2)` before and :math:`N(\mu_2,\sigma^2)` from place
    :math:`k` on, the likelihood is largest where the sum of squares within both parts,
    :math:`S_k`, is least. Its p value is the share of random orders of the points, the given one
    included, that have an :math:`S_k` as small somewhere. With flat priors on the means, on
    :math:`\ln\sigma` and on the place, the posterior is
    :math:`p(k)\propto(k(n-k))^{-1/2}S_k^{-(n-2)/2}`; `first` and `last` bound the smallest set of
    places with at least `level` of it.

    A small p says that the order of the points matters, not that the curve jumps: a slow rise has
    one too, and neighbouring checkpoints resemble each other. `bic_over_line` tells a jump from a
    rise.

    Parameters
    ----------
    values
        (n,) in the order of training, evenly weighted whatever the distance of the steps.

    Returns
    -------
    None for fewer than six points, a point that is not finite, or a constant curve.

    References
    ----------
    Posterior: Smith 1975, Biometrika 62, 407–416. Two points at least on either side are ours.

    Examples
    --------
    >>> found = change_point([0.0, 0.1, 0.0, 0.1, 0.9, 1.0, 0.9, 1.0])
    >>> found.at, round(found.mean_before, 2), round(found.mean_after, 2), found.first, found.last
    (4, 0.05, 0.95, 4, 4)
    """
    y = np.asarray(values, np.float64)
    n = len(y)
    if n < FEWEST or not np.isfinite(y).all():
        return None
    total = float(((y - y.mean()) ** 2).sum())
    if total <= n * (8 * np.finfo(float).eps * float(np.abs(y).max())) ** 2:
        return None
    places = np.arange(SHORTEST, n - SHORTEST + 1)
    within = _within(y[None], places)[0]
    best = int(within.argmin())
    at = int(places[best])
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(y, (permutations, 1)), axis=1)
    as_small = _within(orders, places).min(axis=1) <= within[best] + TINY * total
    posterior = _posterior(np.maximum(within, TINY * total), places, n)
    likely = np.argsort(-posterior, kind="stable")
    enough = int(np.searchsorted(np.cumsum(posterior[likely]), level)) + 1
    inside = places[likely[:enough]]
    return ChangePoint(
        at,
        float(y[:at].mean()),
        float(y[at:].mean()),
        (1 + int(as_small.sum())) / (1 + permutations),
        float(posterior[best]),
        int(inside.min()),
        int(inside.max()),
        _bic_over_line(y, max(float(within[best]), TINY * total), TINY * total),
    )


def _within(y: Floats, places: np.ndarray) -> Floats:
    """(m, n) curves and (k,) places to (m, k): squares around the means of both parts."""
    centred = y - y.mean(axis=1, keepdims=True)
    n = y.shape[1]
    sums = np.cumsum(centred, axis=1)[:, places - 1]
    squares = (centred**2).sum(axis=1, keepdims=True)
    # Centred, the second part's sum is minus the first part's.
    within: Floats = np.maximum(squares - sums**2 * (1 / places + 1 / (n - places)), 0)
    return within


def _posterior(within: Floats, places: np.ndarray, n: int) -> Floats:
    log = -0.5 * np.log(places * (n - places)) - (n - 2) / 2 * np.log(within)
    weights = np.exp(log - log.max())
    posterior: Floats = weights / weights.sum()
    return posterior


def _bic_over_line(y: Floats, within: float, least: float) -> float:
    n = len(y)
    x = np.arange(n) - (n - 1) / 2
    centred = y - y.mean()
    line = max(float((centred**2).sum() - (x @ centred) ** 2 / (x @ x)), least)
    # Line: level, slope, variance. Change: two levels, place, variance.
    return float(n * np.log(line / within) - np.log(n))
