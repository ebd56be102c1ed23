"""Change points of a curve over checkpoints: up to two mean shifts, tested against random walks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.local_level import LocalLevel

Kind = Literal["none", "change point", "gradual"]
KINDS = frozenset(get_args(Kind))
SHORTEST = 2
"""Minimum number of points of a level."""
FEWEST = 6
"""Minimum number of points of a curve."""
ALPHA = 0.05
"""Largest p value of a reported change."""
N_WALKS = 10_000
"""Simulated curves under each null; the smallest p value is 1 / (N_WALKS + 1)."""
WALKS = (2_000, N_WALKS, 100_000)
"""Simulated curves: few if p is clearly above `ALPHA`, most if it is near. With the most, the
standard error of p = 0.05 is 0.0007."""
CHUNK = 500
"""Curves simulated at once."""
CACHED = 80_000
"""Points of curves that are tested at once, which stay in a processor's cache: 500 curves of 154
points."""
SECOND_WEIGHT = 2
"""Factor of the p value of two changes before the smaller p value is taken. With 2, a shift of six
standard deviations is found in 9 of 10 runs at Pythia's 20 log-spaced steps; with 1, less often."""
UNTRAINED_SHARE = 0.1
"""Longest untrained phase, as a share of the last step."""
TINY = 1e-12
"""Sums of squares below this share of the curve's own are rounding."""


class Place(NamedTuple):
    """The start of a level. Indices count points."""

    at: int
    first: int
    """Ends of a 95 % credible set, given the place of the other change."""
    last: int
    probability: float
    """Posterior probability of exactly `at`."""


class Slope(NamedTuple):
    """A fitted logistic curve."""

    first_step: int
    """Step at 10 % of its rise, limited to the observed steps."""
    last_step: int
    """Step at 90 % of its rise, limited to the observed steps."""
    before: float
    """Value at the first checkpoint."""
    after: float
    """Value at the last checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of a curve: none, one or two change points, or a gradual change."""

    kind: Kind
    """`none` if `p_random_walk` is above 0.05; `gradual` if a logistic curve fits better."""
    places: tuple[Place, ...]
    """The change points that fit best, in order: two if the second is also significant."""
    means: tuple[float, ...]
    """Mean of each level, one more than `places`."""
    p_random_walk: float
    """p value of one or two mean shifts: the largest over all seven nulls."""
    p_error: float
    """Monte-Carlo standard error of `p_random_walk`."""
    p_second: float
    """p value of a second change point, given the first; NaN if the first is not significant."""
    bic_over_logistic: float
    """BIC of a logistic curve in log(1 + step) minus that of the change points. Negative values
    favour the logistic curve."""
    slope: Slope | None
    """The logistic curve that fits best, if the curve has a change."""


def change_points(
    values: ArrayLike, steps: ArrayLike | None = None, *, seed: int = 0
) -> Changes | None:
    r"""One or two mean shifts of a curve over training steps, tested against random walks.

    Neighbouring checkpoints share their weights, so a curve without a change is similar to a random
    walk, and random walks look shifted. The places minimise the sum of squares within the levels,
    :math:`W`; the second place is the best one given the first. :math:`S` is the sum of squares of
    the whole curve, and :math:`D` that of the differences between neighbouring points, except those
    at the places. The statistic is :math:`\ln(W/S)+\ln(W/D)`, standardised at each place by its
    mean and standard deviation under the null, and minimised over all places. It is small if levels
    are far from each other and points vary little within them. For each curve, take the smaller of
    the rank of its one-change statistic and twice the rank of its two-change statistic. The p value
    is the fraction of curves, the observed one included, whose value is at most the observed one.
    `p_random_walk` is the largest p value over seven nulls at the same steps: a Gaussian random
    walk over checkpoints; Brownian motion in step, and in :math:`\ln(1+step)`; a walk with
    increments of a t distribution with three degrees of freedom; a walk whose increments shrink
    like a cosine schedule; independent points; and a local-level model, which is a random walk with
    noise of its own at each checkpoint. The statistic of the last is the likelihood ratio of a
    shift, and its two variances are estimated from the curve.

    A second change point is reported if it is significant given the first, against the same nulls
    with a shift of any size at the first. A logistic curve in :math:`\ln(1+step)` with at least two
    checkpoints on its slope is compared by BIC with the change points; if it is better, the change
    is `gradual`.

    Parameters
    ----------
    values
        (n,) in the order of training.
    steps
        (n,) training steps, increasing; by default 0, 1, …
    seed
        Random seed of the walks, which curves over the same checkpoints share.

    Returns
    -------
    None for fewer than six points, a point that is not finite, or a constant curve.

    References
    ----------
    Random walks look like changes in mean: Nunes, Kuan and Newbold 1995, Econometric Theory 11,
    736–749; Bai 1998, Econometric Theory 14, 663–669. Posterior of a place: Smith 1975, Biometrika
    62, 407–416. The statistic and the set of nulls are not from a paper.

    Examples
    --------
    >>> found = change_points([0.0, 0.1, 0.0, 0.1, 0.0, 0.1, 0.9, 1.0, 0.9, 1.0, 0.9, 1.0])
    >>> found.kind, found.places[0].at, [round(mean, 2) for mean in found.means]
    ('change point', 6, [0.05, 0.95])
    """
    y = np.asarray(values, np.float64)
    n = len(y)
    if n < FEWEST or not np.isfinite(y).all():
        return None
    total = float(((y - y.mean()) ** 2).sum())
    if total <= n * (8 * np.finfo(float).eps * float(np.abs(y).max())) ** 2:
        return None
    checkpoints = np.asarray(range(n) if steps is None else steps, np.float64)
    if len(checkpoints) != n:
        raise ValueError(f"{n} values at {len(checkpoints)} steps")
    walks = _random_walks(tuple(checkpoints.tolist()), seed)
    y = (y - y.mean()) / np.sqrt(total / n)
    p, error = walks.p_value(y)
    places = [int(_best(y[None])[0])]
    p_second = bic = float("nan")
    slope = None
    if p <= ALPHA:
        p_second = walks.p_second(y, places[0])
        if p_second <= ALPHA:
            places = _two(y, places[0])
        slope, left = _logistic(y, checkpoints)
        # Parameters besides the variance: two levels, place and width, or levels and places.
        bic = float(
            n * np.log(max(left, TINY * n) / max(_within(y, places), TINY * n))
            + (4 - (2 * len(places) + 1)) * np.log(n)
        )
    original, scale = np.asarray(values, np.float64), float(np.sqrt(total / n))
    if slope is not None:
        ends = (original.mean() + scale * end for end in (slope.before, slope.after))
        slope = Slope(slope.first_step, slope.last_step, *ends)
    return Changes(
        kind="none" if slope is None else "gradual" if bic < 0 else "change point",
        places=_credible(y, places),
        means=tuple(float(part.mean()) for part in np.split(original, places)),
        p_random_walk=p,
        p_error=error,
        p_second=p_second,
        bic_over_logistic=bic,
        slope=slope,
    )


CHANGE_COLUMNS = {
    "change": pl.Int64,
    "kind": pl.String,
    "before": pl.Int64,
    "step": pl.Int64,
    "earliest": pl.Int64,
    "latest": pl.Int64,
    "mean_before": pl.Float64,
    "mean_after": pl.Float64,
    "probability": pl.Float64,
    "p_random_walk": pl.Float64,
    "p_error": pl.Float64,
    "p_second": pl.Float64,
    "bic_over_logistic": pl.Float64,
    "from_step": pl.Int64,
    "last_step": pl.Int64,
    "checkpoints": pl.Int64,
}
"""Columns of a table of changes: one row per change point or gradual change. A change is between
the checkpoints `before` and `step`. If `kind` is `none`,
the row contains the best place, which is not significant. If it is null, no test was possible."""

ChangeRow = dict[str, int | float | str | None]


def change_rows(steps: Sequence[int], values: Floats, draws: Floats) -> list[ChangeRow]:
    """Rows of `CHANGE_COLUMNS` for a curve, (n,), from the end of its untrained phase on.

    `draws` are (b, n) resamples of the curve, or none. `earliest` and `latest` are the ends of the
    union of two 95 % sets of a change point: that of the posterior, and that of the places in
    resampled curves. For a gradual change, which has no `step`, they are the ends of its slope.
    """
    known = draws[np.isfinite(draws).all(axis=1)]
    start = first_trained(steps, known)
    later = tuple(steps[start:])
    common: ChangeRow = {
        "from_step": later[0] if later else None,
        "last_step": later[-1] if later else None,
        "checkpoints": len(later),
    }
    found = change_points(values[start:], later)
    if found is None:
        return [common]
    common |= {
        "kind": found.kind,
        "p_random_walk": found.p_random_walk,
        "p_error": found.p_error,
        "p_second": found.p_second,
        "bic_over_logistic": found.bic_over_logistic,
    }
    if found.kind == "gradual" and found.slope is not None:
        names = ("earliest", "latest", "mean_before", "mean_after")
        return [{"change": 1, **dict(zip(names, found.slope, strict=True)), **common}]
    ranges = _ranges(known[:, start:], found.places)
    return [
        {
            "change": number + 1,
            "before": later[place.at - 1],
            "step": later[place.at],
            "earliest": later[first],
            "latest": later[last],
            "mean_before": found.means[number],
            "mean_after": found.means[number + 1],
            "probability": place.probability,
            **common,
        }
        for number, (place, (first, last)) in enumerate(zip(found.places, ranges, strict=True))
    ]


def first_trained(steps: Sequence[int], draws: Floats) -> int:
    """Index of the first checkpoint after the untrained phase, from (b, n) resamples of a curve.

    It is the first one whose paired difference from step 0 has a 95 % interval without zero. The
    phase is at least step 0, and at most a tenth of the training. If no checkpoint of that tenth
    differs, or a curve has no draws, only step 0 is excluded. 0 without a step 0.
    """
    if not len(steps) or steps[0] != 0:
        return 0
    tenth = int(np.searchsorted(steps, UNTRAINED_SHARE * steps[-1], side="right"))
    if len(draws) and tenth > 1:
        moved = draws[:, 1:tenth] - draws[:, :1]
        low, high = np.quantile(moved, [0.025, 0.975], axis=0)
        if (differs := (low > 0) | (high < 0)).any():
            return 1 + int(differs.argmax())
    return 1


def _ranges(draws: Floats, places: Sequence[Place]) -> list[tuple[int, int]]:
    """The 95 % set of each place, widened to that of its places in resampled curves."""
    edges = [0, *(place.at for place in places), draws.shape[1]]
    ranges = []
    for k, place in enumerate(places):
        first, last = place.first, place.last
        if len(draws):
            ordered = edges[k] + np.sort(_best(draws[:, edges[k] : edges[k + 2]]))
            tail = int(0.025 * len(ordered))
            first, last = min(first, int(ordered[tail])), max(last, int(ordered[-1 - tail]))
        ranges.append((first, last))
    return ranges


class _Walks:
    """Simulated curves without a change at given steps, and their statistics."""

    def __init__(self, steps: Floats, *, seed: int) -> None:
        splits = _Splits(len(steps))
        self._nulls = [
            _Null(draw, splits, seed=(seed, number)) for number, draw in enumerate(_nulls(steps))
        ]
        self._level = LocalLevel(splits.places, len(steps))
        self._levels: dict[int, _Null] = {}
        self._seed = (seed, len(self._nulls))

    def p_value(self, y: Floats) -> tuple[float, float]:
        """The largest p value of one or two changes over the nulls, and its standard error."""
        nulls = (*self._nulls, self._local_level(y))
        return _largest(nulls, lambda null, exceeded: null.p_value(y, exceeded))

    def p_second(self, y: Floats, first: int) -> float:
        """The largest p value of a second change, given the place of the first."""
        nulls = (*self._nulls, self._local_level(y, first))
        return _largest(nulls, lambda null, exceeded: null.p_second(y, first, exceeded))[0]

    def _local_level(self, y: Floats, first: int | None = None) -> "_Null":
        """The local-level null with the ratio of variances that fits a curve best."""
        ratio = self._level.ratio(y, first)
        if ratio not in self._levels:
            draw = partial(self._level.draw, ratio)
            # 100,000 curves of 154 points would take half a minute.
            walks, seed = (CHUNK, *WALKS[:2]), (*self._seed, ratio)
            self._levels[ratio] = _Null(draw, self._level, seed=seed, walks=walks)
        return self._levels[ratio]


def _largest(
    nulls: Iterable["_Null"], test: Callable[["_Null", bool], tuple[float, float]]
) -> tuple[float, float]:
    """The largest p value, and its standard error.

    A test receives whether one before it exceeds `ALPHA`: then one below it need not be exact. The
    null that seems to have the largest comes first.
    """
    largest = 0.0, 0.0
    for null in sorted(nulls, key=lambda null: test(null, True), reverse=True):
        largest = max(largest, test(null, largest[0] > ALPHA))
    return largest


@lru_cache(maxsize=16)  # starts after the untrained phase of 154 checkpoints, 8 MB each
def _random_walks(steps: tuple[float, ...], seed: int) -> _Walks:
    """The walks at these steps: drawing them takes longer than testing a curve against them."""
    return _Walks(np.array(steps), seed=seed)


Draw = Callable[[np.random.Generator, int], Floats]


def _nulls(steps: Floats) -> list[Draw]:
    """The nulls: each draws (m, n) curves."""
    n = len(steps)
    weights = (
        np.ones(n - 1),
        np.sqrt(np.diff(steps)),
        np.sqrt(np.diff(np.log1p(steps))),
        (1 + np.cos(np.pi * steps[1:] / steps[-1])) / 2,
    )
    return [
        *(partial(_gaussian_walks, weight) for weight in weights),
        lambda rng, m: _walks(rng.standard_t(3, (m, n - 1))),
        lambda rng, m: rng.standard_normal((m, n)),
    ]


def _gaussian_walks(weight: Floats, rng: np.random.Generator, m: int) -> Floats:
    return _walks(weight * rng.standard_normal((m, len(weight))))


def _walks(increments: Floats) -> Floats:
    curves = np.zeros((increments.shape[0], increments.shape[1] + 1))
    np.cumsum(increments, axis=1, out=curves[:, 1:])
    return curves


class _Null:
    """Curves drawn under one null, and their smallest statistics."""

    def __init__(
        self,
        draw: Draw,
        splits: "_Splits | LocalLevel",
        *,
        seed: tuple[int, ...],
        walks: Sequence[int] = WALKS,
    ) -> None:
        self._draw = draw
        self._walks = walks
        self._splits = splits
        self._seed = seed
        self._forms: list[_Form] = []
        self._least = np.empty((2, 0))
        self._seconds: dict[tuple[int, int], tuple[_Form, Floats]] = {}
        self._levels: dict[int, tuple[Floats, NDArray[np.int64]]] = {}

    def p_value(self, y: Floats, exceeded: bool) -> tuple[float, float]:
        """p value of one or two changes in a curve, and its standard error."""
        p = error = 0.0
        both = self._splits.both(y[None])
        for count in self._walks:
            ranks, weighted = self._level(count)
            least = np.array([form.least(t) for form, t in zip(self._forms, both, strict=True)])
            as_small = np.searchsorted(weighted, _rank(ranks, least + TINY)[0], side="right")
            p = (1 + int(as_small)) / (1 + count)
            error = float(np.sqrt(p * (1 - p) / count))
            above, below = p - 4 * error > ALPHA, p + 4 * error < ALPHA
            if (above and count > CHUNK) or (below and (exceeded or count == N_WALKS)):
                break
        return p, error

    def p_second(self, y: Floats, first: int, exceeded: bool) -> tuple[float, float]:
        """Likewise of a second change, against walks with a shift of any size at the first."""
        p = error = 0.0
        for count in WALKS[:2]:
            if (first, count) not in self._seconds:
                drawn = [self._splits.second(part, first) for part in self._curves(0, count)]
                form = _Form.fit(drawn)
                least = np.concatenate([form.least(t) for t in drawn])
                self._seconds[first, count] = form, np.sort(least)
            form, least = self._seconds[first, count]
            value = form.least(self._splits.second(y[None], first))[0] + TINY
            p = (1 + int(np.searchsorted(least, value, side="right"))) / (1 + count)
            error = float(np.sqrt(p * (1 - p) / count))
            if p - 4 * error > ALPHA or (exceeded and p + 4 * error < ALPHA):
                break
        return p, error

    def _level(self, count: int) -> tuple[Floats, NDArray[np.int64]]:
        """Both statistics of the first `count` curves, each sorted, and their sorted ranks.

        Curves are always drawn in the same order, so a p value does not depend on earlier tests.
        """
        if count not in self._levels:
            curves = self._curves(self._least.shape[1], count)
            drawn: Iterable[tuple[Floats, Floats]] = map(self._splits.both, curves)
            if not self._forms:
                drawn = [*drawn]
                self._forms = [_Form.fit(t) for t in zip(*drawn, strict=True)]
            for both in drawn:
                pairs = zip(self._forms, both, strict=True)
                self._least = np.hstack([self._least, [form.least(t) for form, t in pairs]])
            ranks = np.sort(self._least, axis=1)
            self._levels[count] = ranks, np.sort(_rank(ranks, self._least))
        return self._levels[count]

    def _curves(self, start: int, stop: int) -> Iterator[Floats]:
        for number in range(start, stop, CHUNK):
            drawn = self._draw(np.random.default_rng((*self._seed, number)), CHUNK)
            yield from np.array_split(drawn, -(-drawn.size // CACHED))


def _rank(ranks: Floats, least: Floats) -> NDArray[np.int64]:
    """Number of drawn curves that are as extreme in either statistic, (2, m) to (m,)."""
    one, two = (
        np.searchsorted(drawn, values, side="right")
        for drawn, values in zip(ranks, least, strict=True)
    )
    rank: NDArray[np.int64] = np.minimum(one, SECOND_WEIGHT * two)
    return rank


class _Form(NamedTuple):
    """Mean and standard deviation of a statistic at each place under a null."""

    mean: Floats
    sd: Floats

    @classmethod
    def fit(cls, parts: Sequence[Floats]) -> "_Form":
        """Of (m, k) statistics of parts of the curves."""
        count = np.maximum(sum(np.isfinite(t).sum(axis=0) for t in parts), 1)
        mean = sum(np.nansum(t, axis=0) for t in parts) / count
        sd = np.sqrt(sum(np.nansum((t - mean) ** 2, axis=0) for t in parts) / count)
        return cls(mean, np.where(sd > 0, sd, 1.0))

    def least(self, t: Floats) -> Floats:
        """The smallest standardised value over the places, (m, k) to (m,)."""
        least: Floats = np.fmin.reduce((t - self.mean) / self.sd, axis=1)
        return least


class _Splits:
    """Splits of curves of n points into two or three levels.

    With `c` the sums of a centred curve up to a place, two levels explain `c²n/(k(n−k))` of the
    squares. A second place `k`, given a first `f`, explains `(c_k − r c_f)² w` more; `r` and `w`
    are tables.
    """

    def __init__(self, n: int) -> None:
        self.places = np.arange(SHORTEST, n - SHORTEST + 1)
        k, f = self.places, self.places[:, None]
        self._one = n / (k * (n - k))
        near, far = np.where(k < f, k, n - k), np.abs(f - k)
        self._share = near / (near + far)
        allowed = (near >= SHORTEST) & (far >= SHORTEST)
        self._weight = np.where(allowed, (near + far) / (near * np.maximum(far, 1)), np.nan)

    def within(self, y: Floats) -> Floats:
        """Squares around both means at every place, (m, n) to (m, k)."""
        return self._sums(y)[2]

    def _sums(self, y: Floats) -> tuple[Floats, Floats, Floats]:
        centred = y - y.mean(axis=1, keepdims=True)
        total = (centred**2).sum(axis=1, keepdims=True)
        sums = centred.cumsum(axis=1)[:, self.places - 1]
        return sums, total, np.maximum(total - sums**2 * self._one, TINY * total)

    def both(self, y: Floats) -> tuple[Floats, Floats]:
        """Statistics of one change at every place, and of a second one given the best one."""
        sums, total, within = self._sums(y)
        jumps = np.diff(y, axis=1) ** 2
        inner = jumps.sum(axis=1, keepdims=True) - jumps[:, self.places - 1]
        first = within.argmin(axis=1)
        one = _statistic(within, total, inner, total)
        return one, self._second_statistic(y, first, (sums, total, within), squares=total)

    def second(self, y: Floats, first: int) -> Floats:
        """The statistic of a second change, relative to the squares within the first two levels."""
        sums, total, within = self._sums(y)
        index = np.full(len(y), first - SHORTEST)
        squares = np.take_along_axis(within, index[:, None], axis=1)
        return self._second_statistic(y, index, (sums, total, within), squares=squares)

    def _second_statistic(
        self,
        y: Floats,
        first: NDArray[np.int64],
        sums_and_totals: tuple[Floats, Floats, Floats],
        *,
        squares: Floats,
    ) -> Floats:
        """The statistic of a second change, relative to `squares`; NaN if a level is too short."""
        sums, total, within = sums_and_totals
        index = first[:, None]
        rest = sums - self._share[first] * np.take_along_axis(sums, index, axis=1)
        left = np.take_along_axis(within, index, axis=1) - rest**2 * self._weight[first]
        jumps = np.diff(y, axis=1) ** 2
        removed = jumps[:, self.places - 1]
        inner = (
            jumps.sum(axis=1, keepdims=True) - removed - np.take_along_axis(removed, index, axis=1)
        )
        return _statistic(np.maximum(left, TINY * total), squares, inner, total)


def _statistic(within: Floats, squares: Floats, inner: Floats, total: Floats) -> Floats:
    """ln(W/S) + ln(W/D): `within` is W, `squares` S, and `inner` D, which is at least rounding."""
    statistic: Floats = np.log(within**2 / (squares * np.maximum(inner, TINY * total)))
    return statistic


def _best(curves: Floats) -> NDArray[np.int64]:
    """The most likely place of one change in every curve, (m, n) to (m,)."""
    splits = _Splits(curves.shape[1])
    best: NDArray[np.int64] = splits.places[splits.within(curves).argmin(axis=1)]
    return best


def _two(y: Floats, first: int) -> list[int]:
    """Two places: the second given the first, then each again given the other."""
    allowed = [k for k in _Splits(len(y)).places.tolist() if abs(k - first) >= SHORTEST]
    pairs = (sorted((first, k)) for k in allowed)
    _, high = min(pairs, key=lambda pair: _within(y, pair))
    low = int(_best(y[None, :high])[0])
    return [low, low + int(_best(y[None, low:])[0])]


def _within(y: Floats, places: Sequence[int]) -> float:
    return float(sum(((part - part.mean()) ** 2).sum() for part in np.split(y, places)))


def _credible(y: Floats, places: Sequence[int]) -> tuple[Place, ...]:
    """Each place with its 95 % credible set, between its neighbours."""
    edges = [0, *places, len(y)]
    found = []
    for k, place in enumerate(places):
        start, n = edges[k], edges[k + 2] - edges[k]
        splits = _Splits(n)
        within = splits.within(y[None, start : edges[k + 2]])[0]
        log = -0.5 * np.log(splits.places * (n - splits.places)) - (n - 2) / 2 * np.log(within)
        posterior = np.exp(log - log.max())
        posterior /= posterior.sum()
        likely = np.argsort(-posterior, kind="stable")
        enough = int(np.searchsorted(np.cumsum(posterior[likely]), 0.95)) + 1
        inside = start + splits.places[likely[:enough]]
        probability = float(posterior[place - start - SHORTEST])
        found.append(Place(place, int(inside.min()), int(inside.max()), probability))
    return tuple(found)


def _logistic(y: Floats, steps: Floats) -> tuple[Slope, float]:
    """The logistic curve in log(1 + step) of a grid with the least squares, and these squares.

    At least two checkpoints are in its middle 80 %: a single one would be a jump.
    """
    x = np.log1p(steps)
    middles = np.concatenate([x, (x[1:] + x[:-1]) / 2, np.linspace(x[0], x[-1], 40)])
    widths = np.geomspace(np.diff(x).min() / 4, (x[-1] - x[0]) / 2, 16)
    from scipy.special import expit  # 0.1 s

    most, found = -1.0, (0.0, 0.0, y)
    for width in widths:  # one at a time: all curves of 1,475 points would take 2 GB
        far = (x - middles[:, None]) / width
        slopes = (np.abs(far) <= np.log(9)).sum(axis=1) >= SHORTEST
        if not slopes.any():
            continue
        curve = expit(far[slopes])
        centred = curve - curve.mean(axis=1, keepdims=True)
        square = np.maximum((centred**2).sum(axis=1), TINY)
        along = centred @ y
        explained = along**2 / square
        best = int(explained.argmax())
        if explained[best] > most:
            fit = y.mean() + centred[best] * along[best] / square[best]
            most, found = explained[best], (middles[slopes][best], width, fit)
    middle, width, fit = found
    reach = middle + np.log(9) * width * np.array([-1, 1])
    first, last = np.rint(np.expm1(np.clip(reach, x[0], x[-1]))).astype(int).tolist()
    return Slope(first, last, float(fit[0]), float(fit[-1])), float(((y - fit) ** 2).sum())
