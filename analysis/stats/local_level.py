"""Likelihood ratios of mean shifts in a local-level model: a random walk plus independent noise.

Checkpoints differ by noise of their own, such as the last batches before them, besides the walk of
their weights. The differences of such a curve are a moving average, whose covariance
`ratio · I + T` has the same eigenvectors for every ratio of the variances of walk and noise
(Harvey 1989, Forecasting, Structural Time Series Models, section 4.3): sines, with the eigenvalues
`2 − 2 cos(πj/n)` of T. So the sine transform of the differences has independent entries, and a mean
shift is one regressor among them.
"""

import numpy as np
from numpy.typing import NDArray

from logitbank.analysis.frames.expressions import Floats

RATIOS = (0.0, *(4.0**k for k in range(-5, 3)), np.inf)
"""Variance of a step of the walk over that of the noise: independent points first, a walk last."""
TINY = 1e-12
"""Sums of squares below this share of the curve's own are rounding."""


class LocalLevel:
    """Local-level models of curves of n points with mean shifts at the places k."""

    def __init__(self, places: NDArray[np.int64], n: int) -> None:
        j = np.arange(1, n)
        eigenvalues = 2 - 2 * np.cos(np.pi * j / n)
        self._n = n
        self._places = places
        variances = [r + eigenvalues if np.isfinite(r) else np.ones(n - 1) for r in RATIOS]
        self._weights = [1 / variance for variance in variances]
        self._log_determinants = [float(np.log(variance).sum()) for variance in variances]
        self._sizes = [_products(r, places, places, n) for r in RATIOS]
        apart = np.abs(places[:, None] - places)
        self._apart = apart >= places[0]

    def draw(self, ratio: int, rng: np.random.Generator, m: int) -> Floats:
        """(m, n) curves without a shift, with the ratio of this index."""
        walks: Floats = rng.standard_normal((m, self._n)).cumsum(axis=1)
        if not np.isfinite(RATIOS[ratio]):
            return walks
        curves: Floats = np.sqrt(RATIOS[ratio]) * walks + rng.standard_normal((m, self._n))
        return curves

    def ratio(self, y: Floats, first: int | None = None) -> int:
        """Index of the most likely ratio for a curve, (n,), with at most a shift at `first`."""
        shifts = int(first is not None)
        return int(self._likelihoods(y[None], first, shifts=shifts)[-1, :, 0].argmax())

    def both(self, y: Floats) -> tuple[Floats, Floats]:
        """Minus the log-likelihood ratios of one and of two shifts, each (m, 1)."""
        none, one, two = self._likelihoods(y, None, shifts=2).max(axis=1)
        return (none - one)[:, None], (none - two)[:, None]

    def second(self, y: Floats, first: int) -> Floats:
        """Minus the log-likelihood ratio of a second shift, given one at `first`, (m, 1)."""
        _, one, two = self._likelihoods(y, first, shifts=2).max(axis=1)
        ratios: Floats = (one - two)[:, None]
        return ratios

    def _likelihoods(self, y: Floats, first: int | None, *, shifts: int) -> Floats:
        """Largest log-likelihoods of (m, n) curves with up to so many shifts, (1 + shifts, r, m).

        The first shift is at `first`, or at its best place; the second at the best place given it.
        """
        z = _sine_transform(np.diff(y, axis=1))
        rows = np.arange(len(y))
        found = np.empty((1 + shifts, len(RATIOS), len(y)))
        models = zip(RATIOS, self._weights, self._log_determinants, self._sizes, strict=True)
        for number, (ratio, weights, log_determinant, size) in enumerate(models):
            weighted = z * weights
            squares = [(weighted * z).sum(axis=1)]
            if shifts:
                along = _sine_transform(weighted)[:, self._places - 1]
                gains = along**2 / size
                at = gains.argmax(axis=1)
                if first is not None:
                    at = np.full(len(y), first - self._places[0])
                squares.append(squares[0] - gains[rows, at])
            if shifts > 1:
                products = _products(ratio, self._places[at][:, None], self._places, self._n)
                share = products / size[at][:, None]
                rest = along - share * along[rows, at][:, None]
                left = np.where(self._apart[at], size - share * products, np.inf)
                squares.append(squares[1] - (rest**2 / left).max(axis=1))
            least = TINY * squares[0]
            fits = [np.log(np.maximum(square, least)) for square in squares]
            found[:, number] = -((self._n - 1) * np.array(fits) + log_determinant) / 2
        return found


def _sine_transform(values: Floats) -> Floats:
    """Rows (m, n − 1) in the basis of the eigenvectors, which is its own inverse."""
    from scipy.fft import dst

    transformed: Floats = dst(values, type=1, norm="ortho", axis=1)
    return transformed


def _products(ratio: float, first: NDArray[np.int64], second: NDArray[np.int64], n: int) -> Floats:
    """Products of the regressors of two shifts, weighted by the inverse variances.

    They are entries of the inverse of `ratio · I + T`, whose closed form (Hu and O'Connell 1996,
    J. Phys. A 29, 1511) takes no product of matrices.
    """
    if np.isinf(ratio):
        return np.equal(first, second).astype(np.float64)
    low, high = np.minimum(first, second), np.maximum(first, second)
    products: Floats
    if ratio == 0:
        products = low * (n - high) / n
    else:
        angle = np.arccosh(1 + ratio / 2)
        lengths = np.arange(n + 1)
        decay = np.exp(-angle * lengths)
        # sinh(angle · length) without its exponential growth, which is that of `decay`
        rises = -np.expm1(-2 * angle * lengths)
        products = decay[high - low + 1] * rises[low] * rises[n - high] / (rises[1] * rises[n])
    return products
