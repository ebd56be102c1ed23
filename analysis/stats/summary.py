"""One summary of items: the values of measures with intervals and changes since the first step.

There are two kinds of interval: t for means and functions of means, and Wilson's for shares,
whose values are 0 and 1. Axis letters: `c` checkpoints, `p` items, `k` parts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats, same_as
from logitbank.analysis.frames.items import Flags, Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, Interval, t_quantile, with_enough
from logitbank.analysis.stats.measure import Measure, Smooth
from logitbank.analysis.stats.shares import Z95, wilson
from logitbank.analysis.stats.significance import seed_mean

CELLS = 500_000
"""Values at once: several arrays of 4 MB."""
BASELINE = {
    "baseline_step": pl.Int64,
    "from_baseline": pl.Float64,
    "from_baseline_low": pl.Float64,
    "from_baseline_high": pl.Float64,
    "common": pl.Int64,
}
"""The change from the first checkpoint of a run, in tables."""
_CHANGES = ("from_baseline", "from_baseline_low", "from_baseline_high")
SKEWED = 10
"""An interval of fewer clusters than so many times their squared skewness is likely too short. Of
20 log-normal values (σ = 2), t covers the mean in 63%. Cochran 1977, Sampling Techniques, 2.15, has
25 for a one-sided error of 5%."""
ALL = "all"
"""The group of all items together."""
EPSILON = 1e-14
"""A standard error up to this is rounding: an interval without width would claim certainty."""


class Estimate(NamedTuple):
    """A number at every checkpoint, each (c,)."""

    value: Floats
    """NaN if a side of the measure has no value."""
    error: Floats
    """Standard error, with clusters as the independent units."""
    low: Floats
    """Ends of the 95 % t interval; NaN for fewer than ten clusters, and without an error."""
    high: Floats
    items: Codes
    clusters: Codes
    sd: Floats
    """Deviation between option orders (ddof 1); NaN for fewer than two, and of a change."""
    squares: Floats
    """Sum of the squared values, of changes of shares."""
    degrees: Floats
    """Degrees of freedom of t."""
    effective: Floats
    """Number of clusters of equal weight that would have this error."""
    skewness: Floats
    """Of what clusters add to the error."""

    @property
    def t_interval(self) -> Interval:
        return Interval(self.low, self.high)


class Branch(NamedTuple):
    """A smooth function of the means of some values."""

    value: Floats
    """(c,)"""
    influence: Floats
    """(c, clusters): what each cluster adds to its error."""

    def minus(self, other: "Branch") -> "Branch":
        with np.errstate(invalid="ignore"):
            return Branch(self.value - other.value, self.influence - other.influence)


class Counts(NamedTuple):
    """How many items and clusters have a value, and what follows for errors.

    Of checkpoints that all have the same items, one row.
    """

    number: Codes
    """(c or 1, k) items of each cell."""
    weights: Floats
    """(c or 1, k) of the means of cells."""
    corrections: list[Floats]
    """Of each cell (c or 1, clusters of the cell): from a sum of residuals to an influence."""
    counted: Flags
    """(c or 1, clusters) whether a cluster counts."""
    degrees: Floats
    """(c or 1,), as `degrees_of_freedom`."""
    effective: Floats
    """(c or 1,)"""


class Side(NamedTuple):
    """Means of the values of c checkpoints, and what follows from these."""

    counts: Counts
    totals: Floats
    """(c, k) sums of cells."""
    means: Floats
    """(c, k) of cells; NaN for no items."""
    branches: list[Branch]
    """The smooth functions of which the number is the least; one, if it is made of means."""


class LeastOf(NamedTuple):
    """The first fields of `Estimate`."""

    value: Floats
    error: Floats
    low: Floats
    high: Floats


def _least(rows: Sequence[Sequence[Branch]], degrees: Floats, enough: Flags) -> LeastOf:
    """The least of several smooth numbers, or of their differences from the least of others.

    Each row has the differences of one number from all others, whose greatest is that from their
    least; the number is the least of rows. What holds for values is done with the ends of their
    t intervals.
    """
    value = np.array([[each.value for each in row] for row in rows])
    error = np.array([[np.sqrt((each.influence**2).sum(axis=1)) for each in row] for row in rows])
    known = enough & (error > EPSILON)
    half = np.where(known, t_quantile(degrees) * error, np.nan)
    least, low, high = (
        each.max(axis=1).min(axis=0) for each in (value, value - half, value + half)
    )
    number = len(rows) * len(rows[0])
    nearest = np.abs(value - least).reshape(number, -1).argmin(axis=0)
    own = error.reshape(number, -1)[nearest, np.arange(len(least))]
    return LeastOf(least, np.where(np.isnan(least), np.nan, own), low, high)


class Design:
    """How items make a number: their parts, orders and clusters, the same at all checkpoints."""

    def __init__(self, axes: pl.DataFrame, measure: Measure) -> None:
        self.which = np.flatnonzero(axes["part"].is_in([*measure.plus, *measure.minus]).to_numpy())
        axes = axes[self.which]
        number = pl.struct("part", "order").rle_id()
        cells = axes.select("part", "order", cell=number).unique("cell", maintain_order=True)
        bounds = [*np.searchsorted(axes.select(number).to_series(), range(len(cells) + 1))]
        self.columns = [slice(*pair) for pair in pairwise(bounds)]
        """The items of each part in each order, which follow one another."""
        self.parts = cells["part"].to_list()
        self.orders = (cells["order"].rank("dense").to_numpy() - 1).astype(np.int64)
        self.exact, self.geometric = measure.share, measure.link == "geometric"
        self.functions = measure.functions
        sides = [(name,) for name in measure.plus] if measure.functions else [measure.plus]
        signed = [(1.0, names) for names in sides] + [(-1.0, measure.minus)] * bool(measure.minus)
        self.sides = [(sign, cells["part"].is_in(names).to_numpy()) for sign, names in signed]
        """The sign and the cells (k,) of each side; every mean of a function is a side."""
        cluster = (axes["cluster"].rank("dense").to_numpy() - 1).astype(np.int64)
        self.clusters = int(cluster.max(initial=-1)) + 1
        starts = [np.flatnonzero(np.diff(cluster[own], prepend=-1)) for own in self.columns]
        found = [cluster[own][first] for own, first in zip(self.columns, starts, strict=True)]
        self.blocks: list[tuple[Codes | slice, Codes]] = [
            (slice(None) if len(names) == self.clusters else names, first)
            for names, first in zip(found, starts, strict=True)
        ]
        """The clusters of each part, and where their items begin."""
        together = np.zeros((len(cells), self.clusters))
        for at, (names, _) in enumerate(self.blocks):
            together[at, names] = 1
        self.strata = _components(together @ together.T > 0)
        self.strata_of_clusters = np.zeros(self.clusters, np.int64)
        for at, (names, _) in enumerate(self.blocks):
            self.strata_of_clusters[names] = self.strata[at]

    @property
    def complete(self) -> bool:
        """Whether every side of the measure has an item."""
        return bool(self.weights(np.ones((1, len(self.columns)), bool)).any())

    def weights(self, present: Flags) -> Floats:
        """(c, k): the weight of the mean of each cell, from which cells have a value.

        A side is the mean of its parts, and the number is the mean over the orders that have all of
        its sides; a function is one of the means over these orders.
        """
        weights = np.zeros(present.shape)
        orders = np.zeros(len(present))
        for order in range(int(self.orders.max(initial=-1)) + 1):
            own, complete = np.zeros(present.shape), np.ones(len(present), bool)
            for sign, cells in self.sides:
                side = present & (self.orders == order) & cells
                number = side.sum(axis=1)
                own += sign * side / np.maximum(number, 1)[:, None]
                complete &= number > 0
            weights += own * complete[:, None]
            orders += complete
        weights /= np.maximum(orders, 1)[:, None]
        return weights

    def missing(self, items: Items) -> Codes:
        """(c,) how many expected items have no value; of a function, of one of its means."""
        cells = np.zeros((len(items.values), len(self.columns)), np.int64)
        for at in np.flatnonzero(self._lacking(items.values)):
            expected = items.expected[items.checkpoints["model"][int(at)]]
            absent = np.isnan(items.values[at, self.which]) & expected[self.which]
            cells[at] = [absent[own].sum() for own in self.columns]
        if self.functions is None:
            return np.asarray(cells.sum(axis=1))
        return np.asarray(np.max([cells[:, side].sum(axis=1) for _, side in self.sides], axis=0))

    def estimates(
        self, values: Floats, first: Codes | None = None, before: Floats | None = None
    ) -> list[Estimate]:
        """The number at checkpoints with values (c, p) of all items.

        If each has a row `first` of the values `before`, also the number minus that of this row,
        over the items of both. Checkpoints that lack an item are apart, so that the bits of the
        others are always the same.
        """
        size = max(1, CELLS // max(1, len(self.which)))
        lacking = self._lacking(values)
        state = lacking.astype(np.int64)
        if before is not None and first is not None:
            state += 2 * self._lacking(before)[first]
        places, parts = list[Codes](), list[list[Estimate]]()
        for each in np.unique(state) if len(state) else [0]:
            same = np.flatnonzero(state == each)
            for start in range(0, max(len(same), 1), size):
                rows = same[start : start + size]
                places.append(rows)
                own = self._own(values, None if len(rows) == len(values) else rows)
                earlier = None
                if before is not None and first is not None:
                    baselines = np.unique(first[rows])  # one, as a rule, which is not repeated
                    earlier = self._own(before, baselines if len(baselines) == 1 else first[rows])
                parts.append(self._estimated(own, earlier, lacks=each % 2 > 0, apart=each > 0))
        order = np.argsort(np.concatenate(places))
        return [
            Estimate(*(np.concatenate(field)[order] for field in zip(*each, strict=True)))
            for each in zip(*parts, strict=True)
        ]

    @property
    def _span(self) -> slice:
        """The items from the first to the last of the measure."""
        return slice(self.which[0], self.which[-1] + 1) if len(self.which) else slice(0)

    def _lacking(self, values: Floats) -> Flags:
        """(c,) whether an item, perhaps of another measure between them, has no value."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.isnan(values[:, self._span].sum(axis=1)))  # no array of all values

    def _own(self, values: Floats, rows: Codes | None = None) -> Floats:
        """The values of the measure; rows are contiguous, so that sums of any number are equal."""
        own = values[:, self._span]
        if rows is not None:
            own = own[rows]
        if own.shape[1] != len(self.which):
            own = own.take(self.which - self.which[0], axis=1)
        return np.log(own) if self.geometric else np.ascontiguousarray(own)

    def _estimated(
        self, values: Floats, before: Floats | None, *, lacks: bool, apart: bool
    ) -> list[Estimate]:
        """Those of checkpoints with all items, or of some that `lacks` one; and of changes."""
        side = self._side(values, whole=not lacks)
        now = self._estimate(side)._replace(sd=self._deviation(side))
        if before is None:
            return [now]
        if not apart:
            change = self._estimate(side, self._side(before, whole=True))
        elif self.functions is None:  # a difference of means is a mean of differences
            change = self._estimate(self._side(values - before, whole=False))
        else:
            absent = np.isnan(values + before)
            both = (np.where(absent, np.nan, each) for each in (values, before))
            change = self._estimate(*(self._side(each, whole=False) for each in both))
        if self.exact:
            change = change._replace(squares=np.nansum((values - before) ** 2, axis=1))
        return [now, change]

    def _estimate(self, now: Side, before: Side | None = None) -> Estimate:
        number, weights, _, counted, degrees, effective = now.counts
        used = weights != 0
        strata = sum(used[:, self.strata == each].any(axis=1) for each in np.unique(self.strata))
        clusters = counted.sum(axis=1)
        branches = [[each] for each in now.branches]
        if before is not None:
            branches = [[each.minus(less) for less in before.branches] for each in now.branches]
            if self.functions is None:  # of shares the bits of a mean of differences
                value = _weighted(weights, (now.totals - before.totals) / number)
                branches = [[branches[0][0]._replace(value=value)]]
        counts = np.where(used, number, 0)
        items = counts.sum(axis=1)
        if self.functions:  # an item has a value of each of the means
            items = np.max([counts[:, cells].sum(axis=1) for _, cells in self.sides], axis=0)
        least = _least(branches, degrees, clusters - strata >= FEWEST_CLUSTERS - 1)
        items, clusters, degrees, effective, unknown = (
            np.broadcast_to(each, len(least.value))
            for each in (items.astype(np.int64), clusters, degrees, effective, np.nan)
        )
        return Estimate(
            *least, items, clusters, unknown, unknown, degrees, effective,
            _skewness(branches[0][0].influence, clusters),
        )  # fmt: skip

    def influences(self, values: Floats) -> Branch:
        """The number at checkpoints with values (c, p) of all items, none of which is missing."""
        branches = self._side(self._own(values), whole=True).branches
        least, at = np.argmin([each.value for each in branches], axis=0), np.arange(len(values))
        return Branch(*(np.stack(field)[least, at] for field in zip(*branches, strict=True)))

    @property
    def degrees(self) -> float:
        """Degrees of freedom of t if no item is missing."""
        return float(self._complete.degrees[0])

    def _side(self, values: Floats, *, whole: bool) -> Side:
        """The means of values (c, p), whose rows are `whole` if none lacks an item."""
        counts = self._complete if whole else self._counted(np.isnan(values))
        sums = [self._sums(values[:, own], whole=whole) for own in self.columns]
        totals = np.stack(sums, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = totals / counts.number
        alike = self._alike if whole else [[k] for k in range(len(self.columns))]
        branches = self._branches(values, means, counts, alike)
        return Side(counts, totals, means, branches)

    @cached_property
    def _alike(self) -> list[list[int]]:
        """Cells of a part with the same weight and clusters, whose residuals are added first."""
        alike: dict[tuple[object, ...], list[int]] = {}
        cells = zip(self.parts, self._complete.weights[0], self.columns, self.blocks, strict=True)
        for k, (part, weight, own, (names, starts)) in enumerate(cells):
            clusters = names.tobytes() if isinstance(names, np.ndarray) else None
            key = part, weight, own.stop - own.start, clusters, starts.tobytes()
            alike.setdefault(key, []).append(k)
        return [*alike.values()]

    @cached_property
    def _complete(self) -> Counts:
        """The counts of a checkpoint with all items."""
        return self._counted(np.zeros((1, len(self.which)), bool))

    def _counted(self, absent: Flags) -> Counts:
        number = np.stack(
            [own.stop - own.start - absent[:, own].sum(axis=1) for own in self.columns], axis=1
        )
        weights = self.weights(number > 0)
        counted = np.zeros((len(absent), self.clusters), bool)
        corrections = []
        squares = np.zeros((len(number), self.clusters))
        for k, (names, sizes) in enumerate(self._sizes(absent)):
            counted[:, names] |= (sizes > 0) & (weights[:, [k]] != 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                leverage = sizes / number[:, [k]]
                # Each part has the correction for its own clusters, as strata have.
                corrections.append(np.sqrt(1 / (1 - leverage)) / number[:, [k]])
            squares[:, names] += np.nan_to_num((weights[:, [k]] * leverage) ** 2)
        loads = np.sqrt(squares)
        with np.errstate(invalid="ignore", divide="ignore"):
            effective = loads.sum(axis=1) ** 2 / squares.sum(axis=1)
        degrees = degrees_of_freedom(loads, self.strata_of_clusters)
        return Counts(number, weights, corrections, counted, degrees, effective)

    def _sizes(self, absent: Flags) -> Iterator[tuple[Codes | slice, Codes]]:
        """The clusters of each part, and (c, clusters) their items with a value."""
        present = ~absent
        for own, (names, starts) in zip(self.columns, self.blocks, strict=True):
            yield names, np.add.reduceat(present[:, own], starts, axis=1, dtype=np.int64)

    def _branches(
        self, values: Floats, means: Floats, counts: Counts, alike: Sequence[Sequence[int]]
    ) -> list[Branch]:
        """The smooth functions of `Side`, from residuals of cells that are alike."""
        weights, used = counts.weights, counts.weights != 0
        smooth = [Smooth(_weighted(weights, means), weights)]
        if self.functions is not None:
            products = np.where(used, weights * means, np.nan)
            smooth = [
                Smooth(
                    each.value,
                    weights * sum(
                        each.slopes[:, [at]] * cells for at, (_, cells) in enumerate(self.sides)
                    ),
                )
                for each in self.functions(self._of_sides(products))
            ]  # fmt: skip
        branches = [Branch(each.value, np.zeros((len(values), self.clusters))) for each in smooth]
        for cells in alike:
            k, (names, starts) = cells[0], self.blocks[cells[0]]
            with np.errstate(invalid="ignore"):
                each_cell = (values[:, self.columns[at]] - means[:, [at]] for at in cells)
                residual = reduce(np.add, each_cell)
            if np.isnan(residual.sum()):
                residual = np.nan_to_num(residual)
            sums = np.add.reduceat(residual, starts, axis=1)
            for branch, each in zip(branches, smooth, strict=True):
                with np.errstate(invalid="ignore"):
                    added = each.slopes[:, [k]] * counts.corrections[k] * sums
                branch.influence[:, names] += np.where(used[:, [k]], added, 0.0)
        return branches

    def _sums(self, values: Floats, *, whole: bool) -> Floats:
        """Sums (c,) without NaN; of shares the same bits in any order, so that equal ones tie."""
        if not self.exact:
            return np.asarray(values.sum(axis=1) if whole else np.nansum(values, axis=1))
        scaled = np.nan_to_num(values) * 2.0**20
        integers = np.rint(scaled)
        rest = np.rint((scaled - integers) * 2.0**40)
        sums = (part.astype(np.int64).sum(axis=1) for part in (integers, rest))
        return np.asarray(next(sums) / 2.0**20 + next(sums) / 2.0**60)

    def _of_sides(self, products: Floats) -> Floats:
        """(c, sides) sums over the cells of each side."""
        return np.stack([_sum_present(products[:, cells]) for _, cells in self.sides], axis=1)

    def _deviation(self, side: Side) -> Floats:
        """Deviation of the number between option orders, (c,)."""
        means, weights = side.means, side.counts.weights
        products = np.where(weights != 0, weights * means, np.nan)
        own = [np.where(self.orders == each, products, np.nan) for each in np.unique(self.orders)]
        # Weights are divided by the number of orders with a value.
        number = np.sum([~np.isnan(each).all(axis=1) for each in own], axis=0)[:, None]
        if self.functions is None:
            values = [_sum_present(each * number) for each in own]
        else:
            functions = [self.functions(self._of_sides(each * number)) for each in own]
            values = [np.min([f.value for f in order], axis=0) for order in functions]
        return seed_mean(np.stack(values, axis=1)).sd


def degrees_of_freedom(loads: Floats, strata: Codes) -> Floats:
    r"""Degrees of freedom of t for clusters of unequal size, (c,).

    In a mean of C clusters with the weights :math:`\lambda_c`, which add up to 1, a cluster has the
    residual :math:`g_c'u` of cluster effects :math:`u`, with
    :math:`g_c=\lambda_c(\delta_c-\lambda)`. The variance is :math:`u'Mu` with
    :math:`M=\sum_cg_cg_c'/(1-\lambda_c)`, and t has
    :math:`(\mathrm{tr} M)^2/\mathrm{tr} M^2` degrees of freedom: C - 1 for equal weights, and 2.2
    for three clusters of 20 items with 17 of one.

    Parameters
    ----------
    loads
        (c, clusters) weights of clusters; strata, which share no cluster, are added.
    strata
        (clusters,) the stratum of each.

    References
    ----------
    Bell & McCaffrey 2002, Survey Methodology 28; here for equal effects of the items of a cluster.
    """
    traces, squares = np.zeros((2, len(loads)))
    for stratum in np.unique(strata):
        own = np.ascontiguousarray(loads[:, strata == stratum])  # for any number, as in `_own`
        total = own.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = own / total[:, None]
            rest = (share**2).sum(axis=1)
            r = share**2 / (1 - share)
            a, b, d = (np.sum(r * share**power, axis=1) for power in (0, 1, 2))
            diagonal = rest[:, None] - 2 * share
            trace = np.sum(r * (1 + diagonal), axis=1)
            square = np.sum(r**2 * (1 + 2 * diagonal), axis=1)
            square += rest**2 * a**2 + 2 * a * d - 4 * rest * a * b + 2 * b**2
        known = np.isfinite(trace)
        traces += np.where(known, total**2 * trace, 0.0)
        squares += np.where(known, total**4 * square, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(traces**2 / squares)


def _skewness(influence: Floats, clusters: Codes) -> Floats:
    """Skewness of what clusters add to an error, (c,)."""
    squares = influence * influence
    powers = (squares, squares * influence)  # a third power by `**` takes ten times as long
    with np.errstate(invalid="ignore", divide="ignore"):
        second, third = (power.sum(axis=1) / clusters for power in powers)
        return np.asarray(third / second**1.5)


def _weighted(weights: Floats, means: Floats) -> Floats:
    """The sum (c,) of means (c, k) with a weight; NaN if there is no other."""
    return _sum_present(np.where(weights != 0, weights * means, np.nan))


def _sum_present(values: Floats) -> Floats:
    """Sum along the last axis without NaN; NaN if there is nothing else."""
    values = np.ascontiguousarray(values)  # so that sums of any number are equal
    return np.where(np.isnan(values).all(axis=-1), np.nan, np.nansum(values, axis=-1))


def _components(linked: Flags) -> Codes:
    """(k,) the number of the component of each part; parts that share clusters are linked."""
    reach = linked
    for _ in range(len(linked)):
        wider = (reach.astype(np.int64) @ linked) > 0
        if (wider == reach).all():
            break
        reach = wider
    return np.unique(reach, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def first_of_runs(items: Items) -> Codes:
    """(c,) the number of the first checkpoint with a value, of each one's model and run.

    Checkpoints before it have their own.
    """
    first = pl.col("at").filter("scored").first().over("model", "run")
    rows = items.checkpoints.with_row_index("at").with_columns(scored=items.scored)
    numbers = rows.select(pl.min_horizontal(first, "at"))
    return numbers.to_series().to_numpy().astype(np.int64)


def last_of_runs(items: Items) -> Codes:
    """The numbers of the last checkpoint with a value of each model and run."""
    rows = items.checkpoints.with_row_index("at").filter(items.scored)
    last = rows.group_by("model", "run", maintain_order=True).last()["at"]
    return last.to_numpy().astype(np.int64)


class _Designed(NamedTuple):
    """A measure of some items."""

    measure: Measure
    design: Design
    sides: Sequence[Design]
    """Those of a difference of shares."""


class _Group(NamedTuple):
    """A combination of groups: its items, and the measures that have one."""

    names: Mapping[str, str]
    which: Codes
    measures: Sequence[_Designed]


class _Baselines(NamedTuple):
    """The checkpoints from which changes of c checkpoints are measured."""

    items: Items
    numbers: Codes
    """(c,) which of these."""
    itself: Flags
    """(c,) whether a checkpoint is its own."""


class Summary:
    """`summarise` of items that are added a few checkpoints at a time.

    Memory does not grow with the number of checkpoints: of those before, only the one is kept from
    which changes of the last run are measured. Items are added in the order of models, runs and
    steps, and each time with all that a model is expected to have.

    Parameters
    ----------
    measures, changes
        As for `summarise`.
    within
        If given, also summarise all items together, as the first group, `ALL`. Items of different
        groups of these columns stay apart.

    Examples
    --------
    >>> from logitbank.analysis.frames.items import gather_items
    >>> rows = pl.DataFrame({"model": "m", "run": "", "step": [0, 8], "item": "a", "value": 0.5})
    >>> summary = Summary([Measure(name="x")])
    >>> for step in rows["step"]:
    ...     summary.add(gather_items([rows.filter(step=step)]))
    >>> summary.table()["baseline_step"].to_list()
    [0, 0]
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        *,
        changes: bool = True,
        within: Sequence[str] | None = None,
    ) -> None:
        self._measures, self._changes, self._within = measures, changes, within
        self._axes: pl.DataFrame | None = None
        self._names = list[str]()
        self._groups = list[_Group]()
        self._tables = list[pl.DataFrame]()
        self._first: dict[tuple[str, ...], Items] = {}
        """The first checkpoint with a value of the last run, by group."""

    def add(self, items: Items) -> None:
        """Summarise the items at their checkpoints."""
        same = self._axes is items.axes  # equality of 100,000 items takes 5 ms
        if self._axes is None or not (same or self._axes.equals(items.axes)):
            self._axes, self._names = items.axes, items.groups
            self._groups = [
                _Group(names, which, [*_designed(items.axes[which], self._measures)])
                for names, which in self._divided(items)
            ]
        rows = [row for group in self._groups for row in self._rows(items, group)]
        if rows:
            about, columns = pl.concat(each for each, _ in rows), [each for _, each in rows]
            joined = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
            self._tables.append(about.with_columns(**joined).filter("expected"))

    def _rows(
        self, items: Items, group: _Group
    ) -> Iterator[tuple[pl.DataFrame, dict[str, NDArray[Any]]]]:
        """What the rows of each measure are about, and the numbers in them."""
        own = items.chosen(group.which) if items.groups else items  # no copy of all values
        baselines = self._baselines(tuple(group.names.values()), own)
        about = own.checkpoints.with_columns(
            **{name: pl.lit(value, pl.String) for name, value in group.names.items()},
            baseline_step=baselines.items.checkpoints["step"].gather(baselines.numbers),
            expected=np.array([own.expected[m].any() for m in own.checkpoints["model"]], bool),
        )
        for each in group.measures:
            numbers = _measured(own.values, each, baselines if self._changes else None)
            named = about.with_columns(measure=pl.lit(each.measure.key))
            yield named, {**numbers, "missing": each.design.missing(own)}

    def _divided(self, items: Items) -> Iterator[tuple[dict[str, str], Codes]]:
        """Each group and the numbers of its items; first that of all together, if it is asked."""
        within = items.groups if self._within is None else self._within
        pooled = [name for name in items.groups if name not in within]
        if pooled and ALL not in items.axes[pooled[0]]:
            for names, which in items.by_group(*pooled):
                yield {name: names.get(name, ALL) for name in items.groups}, which
        yield from items.by_group()

    def _baselines(self, group: tuple[str, ...], items: Items) -> _Baselines:
        """The first checkpoint with a value of each run, perhaps one that was added before."""
        found, numbers = items, first_of_runs(items)
        itself = numbers == np.arange(len(numbers))
        if (first := self._first.pop(group, None)) is not None:
            rows, numbers = np.unique(numbers, return_inverse=True)  # no copy of all values
            found = items.at(rows)
            found = found._replace(
                checkpoints=pl.concat([found.checkpoints, first.checkpoints]),
                values=np.concatenate([found.values, first.values_of(items.axes)]),
            )
            run = same_as(first.checkpoints.row(0, named=True), ("model", "run"))
            later = items.checkpoints.select(run).to_series().to_numpy()
            numbers, itself = np.where(later, len(rows), numbers), itself & ~later
        if (last := found.at(numbers[-1:])).scored.any():
            self._first[group] = last
        return _Baselines(found, numbers, itself)

    def table(self) -> pl.DataFrame:
        """The measures at all checkpoints, as of `summarise`."""
        schema = _schema(self._names)
        table = pl.concat([pl.DataFrame(schema=schema), *self._tables], how="diagonal")
        return table.sort(CHECKPOINT, nulls_last=True, maintain_order=True).select(*schema)


def _designed(axes: pl.DataFrame, measures: Sequence[Measure]) -> Iterator[_Designed]:
    """The measures that have an item."""
    for measure in measures:
        design = Design(axes, measure)
        if len(design.which):
            sides = (measure.plus, measure.minus) if measure.share and measure.minus else ()
            of_sides = [Design(axes, replace(measure, plus=side, minus=())) for side in sides]
            yield _Designed(measure, design, of_sides)


def summarise(items: Items, measures: Sequence[Measure], *, changes: bool = True) -> pl.DataFrame:
    """The measures of items at every checkpoint, for each combination of their groups.

    Without `changes`, those from the first checkpoint are not computed: NaN, and `common` is 0.

    Returns
    -------
    One row per checkpoint, combination of groups and measure that has an item for the model: model,
    run, step, the groups, measure, value, stderr, low, high, `skewed` (whether the interval is
    likely to be too short), `sd` (between option orders), items, clusters, missing (expected items
    without a value), and `BASELINE`: the change from the first checkpoint of the run, paired over
    the `common` clusters. Sorted by checkpoint, then by group in the order of the alphabet, then by
    measure in the order given.
    """
    summary = Summary(measures, changes=changes)
    summary.add(items)
    return summary.table()


def measures_table(
    items: Items, measures: Sequence[Measure], *, within: Sequence[str] = ()
) -> pl.DataFrame:
    """`summarise`; of groups first all items together, in the group `ALL`.

    Items of different groups of `within` stay apart.
    """
    summary = Summary(measures, within=within)
    summary.add(items)
    return summary.table()


def paired_differences(a: Items, b: Items, measures: Sequence[Measure]) -> pl.DataFrame:
    """The interval of each measure of B minus that of A, for the items of `common_items`.

    Columns model, run, step, groups, measure, low, high, items. NaN for measures with a link.
    """
    keys = [*CHECKPOINT, *a.groups, "measure"]
    schema = {name: dtype for name, dtype in _schema(a.groups).items() if name in keys}
    tables = [pl.DataFrame(schema={**schema, "low": pl.Float64, "high": pl.Float64})]
    for group, which in a.by_group():
        axes, rows = a.axes[which], np.arange(len(a.checkpoints))
        for measure in measures:
            design = Design(axes, measure)
            if len(design.which):
                _, moved = design.estimates(b.values[:, which], rows, a.values[:, which])
                low, high = _change_interval(moved, measure)
                names = {name: pl.lit(value, pl.String) for name, value in group.items()}
                tables.append(
                    a.checkpoints.with_columns(
                        **names, measure=pl.lit(measure.key), low=pl.Series(low),
                        high=pl.Series(high),
                    )
                )  # fmt: skip
    return pl.concat(tables, how="diagonal").select(*schema, "low", "high")


def difference_table(a: Items, b: Items, measures: Sequence[Measure]) -> pl.DataFrame:
    """Each measure of A and of B, and B minus A with its interval, for items of `common_items`.

    Columns model, run, step, groups, measure, a, b, difference, low, high, items.
    """
    keys = [*CHECKPOINT, *a.groups, "measure"]
    one, other = (summarise(items, measures, changes=False) for items in (a, b))
    table = one.select(*keys, "items", a="value")
    for more in (other.select(*keys, b="value"), paired_differences(a, b, measures)):
        table = table.join(more, on=keys, nulls_equal=True, maintain_order="left")
    difference = (pl.col("b") - pl.col("a")).alias("difference")
    return table.select(*keys, "a", "b", difference, "low", "high", "items")


def _schema(groups: Sequence[str]) -> pl.Schema:
    floats = ("value", "stderr", "low", "high")
    return pl.Schema({
        **CHECKPOINT_SCHEMA,
        **dict.fromkeys(groups, pl.String), "measure": pl.String,
        **dict.fromkeys(floats, pl.Float64), "skewed": pl.Boolean, "sd": pl.Float64,
        **dict.fromkeys(("items", "clusters", "missing"), pl.Int64), **BASELINE,
    })  # fmt: skip


def _measured(
    values: Floats, designed: _Designed, baselines: _Baselines | None
) -> dict[str, NDArray[Any]]:
    """The columns of a measure of items, from value to common."""
    measure, design, sides = designed
    change = None
    if baselines is None:
        (now,) = design.estimates(values)
    else:
        now, change = design.estimates(values, baselines.numbers, baselines.items.values)
    interval = now.t_interval
    if measure.share and measure.minus:
        interval = share_difference_interval(now, *(each.estimates(values)[0] for each in sides))
    elif measure.share:
        interval = share_interval(now)
    if measure.ranks:
        interval = Interval(np.nan * now.value, np.nan * now.value)
    value, low, high = (measure.scale * each for each in (now.value, *interval))
    if measure.link:
        value, low, high = np.exp(value), np.exp(low), np.exp(high)
    if measure.limits is not None:
        low, high = (np.clip(end, *measure.limits) for end in (low, high))
    stderr = measure.scale * now.error * (value if measure.link else 1)
    with np.errstate(invalid="ignore"):
        skewed = now.clusters < SKEWED * now.skewness**2
    columns: dict[str, NDArray[Any]] = {
        "value": value, "stderr": np.abs(stderr), "low": np.fmin(low, high),
        "high": np.fmax(low, high), "skewed": skewed & (not measure.share),
        "sd": measure.scale * now.sd, "items": now.items, "clusters": now.clusters,
    }  # fmt: skip
    if baselines is None or change is None:
        unknown = dict.fromkeys(_CHANGES, np.full(len(values), np.nan))
        return {**columns, **unknown, "common": np.zeros(len(values), np.int64)}
    columns["common"] = change.items
    moved = _change_interval(change, measure)
    for name, each in zip(_CHANGES, (change.value, moved.low, moved.high), strict=True):
        scale = np.nan if measure.link else 1 if name.endswith(("low", "high")) else measure.scale
        columns[name] = np.where(baselines.itself, np.nan, scale * each)
    return columns


def _change_interval(change: Estimate, measure: Measure) -> Interval:
    """95 % interval of a paired difference of a measure."""
    by_item = measure.share and not measure.minus and _are_clusters(change).all()
    interval = paired_share_interval(change) if by_item else change.t_interval
    scale = np.nan if measure.link or measure.ranks else measure.scale
    ends = scale * interval.low, scale * interval.high
    return Interval(np.minimum(*ends), np.maximum(*ends))


def _are_clusters(now: Estimate) -> Flags:
    """(c,) whether every item is a cluster, and has the weight of the others."""
    return np.isclose(now.effective, now.items, rtol=1e-9)


def share_interval(now: Estimate) -> Interval:
    """Wilson's interval of a share, for as many independent items as its clusters are worth.

    Their effective number is `items` over the design effect: the variance between clusters as a
    multiple of that of independent items. It is at most `items`, and the effective number of
    clusters if the share is 0 or 1. If every item is a cluster, it is `items`, and the quantile is
    that of the normal distribution instead of t.

    References
    ----------
    Korn and Graubard 1998, Survey Methodology 24.
    """
    degrees = np.nan_to_num(now.degrees, nan=1.0)
    z = np.where(_are_clusters(now), Z95, t_quantile(degrees))
    return with_enough(wilson(now.value, _worth(now), z), now.clusters)


def _worth(now: Estimate) -> Floats:
    """(c,) how many independent items have the error of a share, as for `share_interval`."""
    p, n = now.value, now.items
    with np.errstate(invalid="ignore", divide="ignore"):
        worth = n * np.fmin(p * (1 - p) / (n - 1) / now.error**2, 1.0)
    return np.where(_are_clusters(now), n, np.where((p == 0) | (p == 1), now.effective, worth))


def reference_p(now: Estimate, measure: Measure) -> Floats:
    """(c,) p of the null hypothesis that a measure has its reference, two-sided.

    A t test; of a share the score test to which Wilson's interval belongs, also with t unless every
    item is a cluster. NaN for fewer than ten clusters, and without an error.
    """
    from scipy.special import stdtr

    assert measure.reference is not None
    reference = measure.reference / measure.scale
    error, degrees = now.error, now.degrees
    with np.errstate(invalid="ignore", divide="ignore"):
        if measure.share:
            error = np.sqrt(reference * (1 - reference) / _worth(now))
            degrees = np.where(_are_clusters(now), np.inf, degrees)
        t = np.abs(now.value - reference) / np.where(error > EPSILON, error, np.nan)
        p = 2 * stdtr(degrees, -t)
    return np.where(now.clusters < FEWEST_CLUSTERS, np.nan, p)


def share_difference_interval(now: Estimate, plus: Estimate, minus: Estimate) -> Interval:
    r"""Newcombe's interval of a difference of shares, from Wilson's of both sides.

    With :math:`d_1` from the first share to an end of its interval and :math:`d_2` from the second
    to its other end, the difference ends :math:`\sqrt{d_1^2-2\phi d_1d_2+d_2^2}` from its value.
    :math:`\phi` is the correlation of the errors of both, 0 if they have no cluster in common or a
    side has no error.

    References
    ----------
    Newcombe 1998, Stat. Med. 17: 873 (independent, method 10) and 2635 (paired, method 10). Not in
    the papers: clusters, by the design effect of each side.
    """
    one, other = (share_interval(side) for side in (plus, minus))
    with np.errstate(invalid="ignore", divide="ignore"):
        shared = plus.error**2 + minus.error**2 - now.error**2
        phi = np.nan_to_num(shared / (2 * plus.error * minus.error), posinf=0, neginf=0)
    phi = np.clip(phi, -1, 1)

    def distance(first: Floats, second: Floats) -> Floats:
        return np.asarray(np.sqrt(first**2 - 2 * phi * first * second + second**2))

    low = now.value - distance(plus.value - one.low, other.high - minus.value)
    high = now.value + distance(one.high - plus.value, minus.value - other.low)
    return Interval(np.clip(low, -1, 1), np.clip(high, -1, 1))


def paired_share_interval(change: Estimate) -> Interval:
    r"""95 % interval of a difference of shares of the same n items, after Bonett and Price.

    With one item added for each direction, the mean of the differences :math:`d_i` in [−1, 1] is
    :math:`m=\sum d_i/(n+2)`, and its variance :math:`((\sum d_i^2+2)/(n+2)-m^2)/(n+2)`.

    References
    ----------
    Bonett & Price 2012, J. Educ. Behav. Stat. 37. Not in the paper: values of ½ for ties.
    """
    n = change.items
    centre = np.nan_to_num(change.value) * n / (n + 2)
    half = Z95 * np.sqrt(((change.squares + 2) / (n + 2) - centre**2) / (n + 2))
    ends = Interval(np.clip(centre - half, -1, 1), np.clip(centre + half, -1, 1))
    return with_enough(ends, change.clusters)
