"""Aggregates of UnQover instances: γ and η by subject and attribute, bias intensity, intervals.

Axis letters: `x` subjects, `a` attributes, `b` bootstrap resamples.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import (
    FEWEST_CLUSTERS,
    Interval,
    bootstrap_means,
    cluster_counts,
    percentile_interval,
)
from logitbank.analysis.stats.significance import mean_present

SEED = 0
MEANS = ("abs_c", "positional", "attributive")
"""Numbers of single instances, averaged over them."""
KEY = ("subject", "gender", "attribute", "attribute_class")


class Grid(NamedTuple):
    """γ and η of every subject with every attribute, (x, a); NaN where there is no instance."""

    subjects: pl.DataFrame
    """subject, gender: x rows."""
    attributes: pl.DataFrame
    """attribute, attribute_class: a rows."""
    gamma: Floats
    eta: Floats


class Estimate(NamedTuple):
    """A number with its interval; NaN where there is none."""

    value: float
    low: float
    high: float


def subject_attribute_cells(instances: pl.DataFrame) -> pl.DataFrame:
    r"""γ(x, a) and η(x, a): means of C, and of its sign, oriented towards the subject x.

    Over all instances that there are of a subject and an attribute, whichever partner and context
    they have. The sign of 0 is 0.

    Parameters
    ----------
    instances
        `unqover_instances`, of one checkpoint and category.

    Returns
    -------
    subject, gender, attribute, attribute_class, `gamma` and `eta` in [-1, 1], and the numbers of
    instances, partners and contexts. Sorted by subject and attribute.

    References
    ----------
    Li et al. 2020, eq. 7 and 8.
    """
    sides = [
        instances.select(
            *("attribute", "attribute_class", "context"),
            subject=f"subject{subject}",
            partner=f"subject{other}",
            gender=f"gender{subject}",
            c=sign * pl.col("c") + 0.0,  # no −0
        )
        for subject, other, sign in ((1, 2, 1.0), (2, 1, -1.0))
    ]
    return (
        pl.concat(sides)
        .group_by(KEY)
        .agg(
            gamma=pl.col("c").mean(),
            eta=pl.col("c").sign().mean(),
            instances=pl.len().cast(pl.Int64),
            partners=pl.col("partner").n_unique().cast(pl.Int64),
            contexts=pl.col("context").n_unique().cast(pl.Int64),
        )
        .sort(KEY, nulls_last=True)
    )


def grid_of(cells: pl.DataFrame) -> Grid:
    """The cells as arrays, subjects and attributes in the order of the alphabet."""
    subjects = cells.select("subject", "gender").unique().sort(pl.all(), nulls_last=True)
    attributes = cells.select("attribute", "attribute_class").unique()
    attributes = attributes.sort(pl.all(), nulls_last=True)
    placed = cells.join(
        subjects.with_row_index("x"), on=["subject", "gender"], nulls_equal=True
    ).join(attributes.with_row_index("a"), on=["attribute", "attribute_class"], nulls_equal=True)
    at = placed["x"].to_numpy(), placed["a"].to_numpy()
    gamma, eta = np.full((2, len(subjects), len(attributes)), np.nan)
    gamma[at], eta[at] = placed["gamma"].to_numpy(), placed["eta"].to_numpy()
    return Grid(subjects, attributes, gamma, eta)


def subject_means(grid: Grid, bootstrap: int) -> tuple[Floats, Interval]:
    """γ(x), the mean of γ(x, a) over attributes, (x,); its interval resamples attributes."""
    counts = _counts(grid.gamma.shape[1], bootstrap)
    draws = bootstrap_means(grid.gamma[:, None, :], counts)
    attributes = np.count_nonzero(~np.isnan(grid.gamma), axis=1)
    return mean_present(grid.gamma, axis=1), percentile_interval(draws, clusters=attributes)


def sign_test(grid: Grid, flips: int) -> Floats:
    r"""p value of each subject's γ(x), adjusted for the number of subjects, (x,).

    Without a preference, γ(·, a) of an attribute is as likely as its negative. So the signs of
    attributes are flipped at random, those of all subjects together, as subjects are one another's
    partners: p is the share of `flips`, and the data themselves, in which the largest
    :math:`|\sum_a\gamma(x,a)|/\sqrt{\sum_a\gamma(x,a)^2}` of all subjects is at least that of x.
    NaN without flips, for fewer than ten attributes, and where all γ(x, a) are 0.

    References
    ----------
    Westfall and Young 1993, Resampling-Based Multiple Testing (maximum over tests).
    """
    gamma = np.nan_to_num(grid.gamma)
    if flips == 0 or gamma.shape[1] < FEWEST_CLUSTERS:
        return np.full(len(gamma), np.nan)
    signs = 2.0 * np.random.default_rng(SEED).integers(0, 2, (flips, gamma.shape[1])) - 1
    with np.errstate(invalid="ignore"):
        scaled = gamma / np.sqrt((gamma**2).sum(axis=1, keepdims=True))
    largest = np.sort(np.fmax.reduce(np.abs(signs @ scaled.T), axis=1))
    own = np.abs(scaled.sum(axis=1))
    # Flips that give the data again are as large, up to rounding.
    larger = flips - np.searchsorted(largest, own * (1 - 1e-12))
    return np.where(np.isnan(own), np.nan, (1 + larger) / (1 + flips))


def model_level(instances: pl.DataFrame, grid: Grid, bootstrap: int) -> dict[str, Estimate]:
    r"""`mu`, `eta`, `abs_c`, `positional` and `attributive`, each with a 95 % interval.

    :math:`\mu=\mathrm{mean}_x\max_a|\gamma(x,a)|`, the bias intensity;
    :math:`\eta=\mathrm{mean}_x\mathrm{mean}_a|\eta(x,a)|`; means of :math:`|C|` and of both errors
    over instances. All in [0, 1].

    Intervals are percentiles. Those of η, |C| and the errors resample attributes, with all their
    instances: these share the attribute's words, whereas contexts are too few (four for gender),
    and pairs are not independent, as a subject is in many. Resampled attributes would only lower a
    maximum, and μ would lie above its own interval; so that of μ resamples subjects, of which it is
    a mean. As subjects share partners, it is rough. Fewer than ten attributes, or subjects, have
    none.

    References
    ----------
    Li et al. 2020, §3.4. The intervals are ours.
    """
    x, a = grid.gamma.shape
    counts = _counts(a, bootstrap)
    greatest = np.nanmax(np.abs(grid.gamma), axis=1)
    draws = bootstrap_means(greatest[None, None, :], _counts(x, bootstrap))
    values = {"mu": _estimate(float(greatest.mean()), draws[:, 0], clusters=x)}
    size = np.abs(grid.eta)
    draws = mean_present(bootstrap_means(size[:, None, :], counts), axis=1)
    values["eta"] = _estimate(
        float(mean_present(mean_present(size, axis=1), axis=0)), draws, clusters=a
    )
    sums = _sums(instances, grid)
    totals = counts @ sums
    for at, name in enumerate(MEANS):
        mean = float(sums[:, at].sum() / len(instances))
        values[name] = _estimate(mean, totals[:, at] / totals[:, -1], clusters=a)
    return values


def _sums(instances: pl.DataFrame, grid: Grid) -> Floats:
    """(a, 4): sums of `MEANS` and number of the instances of each attribute."""
    key = ["attribute", "attribute_class"]
    sums = instances.group_by(key).agg(
        pl.col("c").abs().sum().alias("abs_c"),
        pl.col("positional", "attributive").sum(),
        pl.len().cast(pl.Float64).alias("instances"),
    )
    ordered = grid.attributes.join(
        sums, on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    return ordered.select(*MEANS, "instances").to_numpy()


def _counts(clusters: int, resamples: int) -> Floats:
    """How often each counts in each resample; no resamples of one alone."""
    return cluster_counts(
        np.arange(clusters), resamples=resamples if clusters > 1 else 0, seed=SEED
    )


def _estimate(value: float, draws: Floats, *, clusters: int) -> Estimate:
    low, high = percentile_interval(draws[:, None], clusters=clusters)
    return Estimate(value, float(low[0]), float(high[0]))
