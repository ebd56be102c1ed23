"""Where a curve over checkpoints changes its level: one change in mean, with its uncertainty."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.frames.expressions import Floats

SHORTEST = 2
"""Points on either side of a change; a level needs more than one."""
FEWEST = 6
"""Points of a curve for which a change is looked for."""
WANDERING = 0.05
"""The largest `p_wander` of a change that is told, as it is of this share of wandering curves."""
WANDERS = 10_000
"""Curves that wander, that one is compared with: its p value is at least 1 of them and itself."""
TINY = 1e-12
"""Sums of squares below this share of the curve's own are rounding."""
PART = 1000
"""Random walks at a time: of 10,000 points they take 80 MB."""


class ChangePoint(NamedTuple):
    """One change of level. Indices count points; the new level begins at `at`."""

    at: int
    mean_before: float
    mean_after: float
    p: float
    """Permutation p value against a curve whose points could come in any order."""
    p_wander: float
    """p value against a curve that wanders, each point a random step from the one before."""
    probability: float
    """Posterior probability of exactly this place."""
    first: int
    """The smallest and largest place of a 95 % set."""
    last: int
    bic_over_line: float
    """BIC of a straight line over the points' order minus that of the change; positive favours the
    change."""


def change_point(
    values: ArrayLike,
    *,
    permutations: int = 2000,
    wanders: int = WANDERS,
    level: float = 0.95,
    seed: int = 0,
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
    one too, and neighbouring checkpoints resemble each other, so that a curve that only wanders has
    one in most cases. `p_wander` is against that: the share of `wanders` Gaussian random walks, and
    the curve itself, that have a :math:`S_k/S` as small somewhere, where :math:`S` is the sum of
    squares of the whole. The share has no unit, so the size of the walk's steps does not matter;
    and as the best place of each walk is taken, it allows for the number of points looked at.
    `bic_over_line` tells a jump from a rise.

    Parameters
    ----------
    values
        (n,) in the order of training, evenly weighted whatever the distance of the steps.

    Returns
    -------
    None for fewer than six points, a point that is not finite, or a constant curve.

    References
    ----------
    Posterior: Smith 1975, Biometrika 62, 407–416. That a random walk looks like a change in mean:
    Nunes, Kuan and Newbold 1995, Econometric Theory 11, 736–749; Bai 1998, Econometric Reviews 17.
    Two points at least on either side, and the walk as the reference, are ours.

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
    places = _places(n)
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
        _p_wander(float(within[best]) / total, n, wanders=wanders, seed=seed),
        float(posterior[best]),
        int(inside.min()),
        int(inside.max()),
        _bic_over_line(y, max(float(within[best]), TINY * total), TINY * total),
    )


def change_places(curves: Floats) -> NDArray[np.int64]:
    """The most likely place of a change in every curve, (m, n) to (m,)."""
    places = _places(curves.shape[1])
    best: NDArray[np.int64] = places[_within(curves, places).argmin(axis=1)]
    return best


def _places(n: int) -> NDArray[np.int64]:
    return np.arange(SHORTEST, n - SHORTEST + 1)


def _p_wander(share: float, n: int, *, wanders: int, seed: int) -> float:
    shares = _wander_shares(n, wanders, seed)
    as_small = int(np.searchsorted(shares, share + TINY, side="right"))
    return (1 + as_small) / (1 + wanders)


@lru_cache(maxsize=16)
def _wander_shares(n: int, wanders: int, seed: int) -> Floats:
    """Least share of squares within both parts, of random walks of n points, sorted."""
    rng = np.random.default_rng(seed)
    parts = []
    for size in [PART] * (wanders // PART) + [wanders % PART]:
        walks = rng.normal(size=(size, n)).cumsum(axis=1)
        total = ((walks - walks.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        parts.append(_within(walks, _places(n)).min(axis=1) / total)
    shares: Floats = np.sort(np.concatenate(parts))
    return shares


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
