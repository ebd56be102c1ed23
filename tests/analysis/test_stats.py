import math

import numpy as np
import polars as pl
import pytest
from scipy import stats as reference

from logitbank.analysis.frames.items import array_items
from logitbank.analysis.stats.bootstrap import (
    bootstrap_means,
    cluster_counts,
)
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.shares import wilson
from logitbank.analysis.stats.significance import (
    benjamini_hochberg,
    mann_whitney,
    mean_present,
    rank_biserial,
    seed_mean,
    wilcoxon,
)
from logitbank.analysis.stats.summary import degrees_of_freedom, summarise

pytestmark = pytest.mark.numerical


def test_mean_of_nothing_is_nan():
    assert np.isnan(mean_present(np.empty((2, 0)), axis=1)).all()
    assert mean_present([[4.0, np.nan]], axis=1).tolist() == [4.0]


def test_seed_spread_divides_by_one_less_than_the_seeds():
    result = seed_mean([[1.0, 3.0, 5.0], [2.0, np.nan, 4.0], [7.0, np.nan, np.nan], [np.nan] * 3])
    assert result.mean.tolist()[:3] == [3.0, 3.0, 7.0]
    assert result.sd[:2].tolist() == pytest.approx([2.0, 2**0.5])
    assert np.isnan([result.sd[2], result.sd[3], result.mean[3]]).all()
    assert result.seeds.tolist() == [3, 2, 1, 0]


def test_u_counts_the_pairs_that_the_first_sample_wins():
    # 1 beats none of {2, 2, 5}; 2 ties two; 4 beats two; 6 beats three: U = 0 + 1 + 2 + 3
    result = mann_whitney([[1.0, 2.0, 4.0, 6.0]], [[2.0, 2.0, 5.0]])
    assert result.statistic.tolist() == [6.0]
    assert (result.n1.tolist(), result.n2.tolist(), result.effect.tolist()) == ([4], [3], [0.5])


@pytest.mark.parametrize("levels", [3, 40, 10**6])
def test_tests_are_those_of_the_textbook_with_ties_and_missing_observations(levels: int) -> None:
    """Pairs are counted, ranks are means of positions, and p is of the corrected normal deviate."""
    rng = np.random.default_rng(levels)
    drawn = rng.integers(-levels, levels, (6, 70)) / levels
    drawn[:3][rng.random((3, 70)) < 0.2] = np.nan
    ours = mann_whitney(drawn[:, :30], drawn[:, 30:])
    paired = wilcoxon(drawn)
    for at, row in enumerate(drawn):
        x, y = (part[~np.isnan(part)] for part in (row[:30], row[30:]))
        u = (x[:, None] > y).sum() + (x[:, None] == y).sum() / 2
        n, ties = len(x) + len(y), np.unique([*x, *y], return_counts=True)[1]
        spread = len(x) * len(y) / 12 * (n + 1 - (ties**3 - ties).sum() / (n * (n - 1)))
        z = (abs(u - len(x) * len(y) / 2) - 0.5) / np.sqrt(spread)
        assert ours.statistic[at] == u
        assert ours.p[at] == pytest.approx(min(1, math.erfc(z / math.sqrt(2))))
        d = row[~np.isnan(row) & (row != 0)]
        sizes = np.abs(d)
        ranks = (sizes[:, None] > sizes).sum(1) + ((sizes[:, None] == sizes).sum(1) + 1) / 2
        m, ties = len(d), np.unique(sizes, return_counts=True)[1]
        spread = (m * (m + 1) * (2 * m + 1) - (ties**3 - ties).sum() / 2) / 24
        z = abs(ranks[d > 0].sum() - m * (m + 1) / 4) / np.sqrt(spread)
        assert paired.statistic[at] == ranks[d > 0].sum()
        assert paired.p[at] == pytest.approx(math.erfc(z / math.sqrt(2)))


def test_a_tiny_p_keeps_its_digits_on_both_sides() -> None:
    d = np.arange(1.0, 301.0)
    for sign in (1, -1):
        z = np.sqrt(300 * 301 * 601 / 24) ** -1 * 300 * 301 / 4
        assert wilcoxon([sign * d]).p[0] == pytest.approx(math.erfc(z / math.sqrt(2)), rel=1e-9)


def test_adjusted_p_values_are_the_least_of_their_followers() -> None:
    p = np.random.default_rng(1).random(40)
    p[[3, 17]] = np.nan
    found = benjamini_hochberg(p)
    known = np.sort(p[~np.isnan(p)])
    for value, adjusted in zip(p, found, strict=True):
        later = [q * 38 / (j + 1) for j, q in enumerate(known) if q >= value]
        assert np.isnan(adjusted) if np.isnan(value) else adjusted == pytest.approx(min(later))


def test_equal_values_give_p_one_and_an_empty_sample_nan():
    zero = wilcoxon(np.zeros((1, 4)))
    assert mann_whitney(np.ones((1, 4)), np.ones((1, 5))).p.tolist() == [1.0]
    assert (zero.p.tolist(), zero.effect.tolist()) == ([1.0], [0.5])
    for result in (mann_whitney(np.empty((2, 0)), np.ones((2, 3))), wilcoxon(np.empty((2, 0)))):
        assert np.isnan([result.statistic, result.p, result.effect]).all()


def test_a_missing_observation_is_left_out():
    a, b = np.array([[1.0, 2, np.nan], [1.0, 2, 4]]), np.array([[3.0, 5], [3.0, 5]])
    left_out = mann_whitney(a, b)
    assert left_out.p[0] == pytest.approx(mann_whitney(a[:1, :2], b[:1]).p[0])
    assert left_out.n1.tolist() == [2, 3]
    d = np.array([[1.0, 2, -3, np.nan]])
    assert wilcoxon(d).p[0] == wilcoxon(d[:, :3]).p[0]


def test_clusters_are_drawn_by_seed():
    counts = cluster_counts(3, resamples=50, seed=7)
    assert (counts.sum(axis=1) == 3).all()
    assert (counts != cluster_counts(3, resamples=50, seed=8)).any()
    assert (counts == cluster_counts(3, resamples=50, seed=7)).all()


def test_bootstrap_mean_weighs_prompts_by_their_counts():
    values = np.array([[[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]]])
    counts = np.array([[1.0, 1.0, 1.0], [0.0, 3.0, 0.0], [2.0, 0.0, 1.0]])
    assert bootstrap_means(values, counts)[:, 0] == pytest.approx([4.0, 3.0, (8 + 14) / 6])


def test_bootstrap_mean_leaves_missing_prompts_out():
    values = np.array([[[1.0, np.nan], [3.0, 5.0]]])
    counts = np.array([[1.0, 1.0], [0.0, 2.0]])
    # Seed 1 has only prompt 1 in the second resample, seed 0 nothing.
    assert bootstrap_means(values, counts).tolist() == [[2.5], [5.0]]


def mean_ends(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """(2, c) ends of the interval of the mean of each row."""
    axes = pl.DataFrame(
        {"item": np.arange(values.shape[1]).astype(str), "cluster": clusters.astype(str)}
    )
    runs = np.arange(len(values))
    checkpoints = pl.DataFrame({"model": "m", "run": [f"{run:04}" for run in runs], "step": 0})
    table = summarise(array_items(checkpoints, axes, values), [Measure(name="x")])
    return table.select("low", "high").to_numpy().T


@pytest.mark.parametrize("clusters", [10, 20, 100])
def test_intervals_of_normal_clusters_cover_their_mean(clusters: int) -> None:
    values = np.random.default_rng(7).normal(0.0, 1.0, (1000, clusters))
    low, high = mean_ends(values, np.arange(clusters))
    assert 0.925 < ((low < 0) & (high > 0)).mean() < 0.975


def test_clusters_of_equal_values_are_one_value():
    rng = np.random.default_rng(8)
    each = rng.normal(0.0, 1.0, (3, 12))
    expected = reference.t.interval(
        0.95, 11, loc=each.mean(axis=1), scale=reference.sem(each, axis=1)
    )
    codes = np.repeat(np.arange(12), 2)
    twice = np.repeat(each, 2, axis=1)
    assert mean_ends(twice, codes) == pytest.approx(np.asarray(expected))
    twice[:, 1::2] = np.nan
    assert mean_ends(twice, codes) == pytest.approx(np.asarray(expected))
    assert np.isnan(mean_ends(each[:, :9], np.arange(9))).all()
    assert np.isnan(mean_ends(np.full((1, 20), 0.1), np.arange(20))).all(), "no width"


def test_rank_biserial_is_the_difference_of_the_shares_of_pairs():
    a, b = np.array([1.0, 4.0, 4.0, 7.0]), np.array([2.0, 4.0, 5.0])
    pairs = [np.sign(x - y) for x in a for y in b]  # Cliff's delta by its definition
    found = rank_biserial(mann_whitney([a], [b]).effect)
    assert found[0] == pytest.approx(np.mean(pairs))


# Intervals of shares.

SIZES = (1, 10, 96, 1584, 100_003)


@pytest.mark.parametrize("n", SIZES)
def test_it_is_that_of_scipy(n: int) -> None:
    counts = sorted({0, 1, n // 3, n // 2, n - 1, n})
    low, high = wilson(np.array(counts) / n, np.full(len(counts), n))
    for at, count in enumerate(counts):
        expected = reference.binomtest(count, n).proportion_ci(method="wilson")
        assert low[at] == pytest.approx(expected.low, rel=1e-9, abs=1e-15)
        assert high[at] == pytest.approx(expected.high, rel=1e-9)
    assert (low[0], high[-1]) == (0.0, 1.0), "exactly, where a difference of roots is 1e-17"
    assert np.isnan(wilson([0.0, float("nan")], [0, 0])).all()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1] * 20, 19.0), ([20] * 3 + [1] * 17, 2.1897), ([1, 2, 3, 4] * 5, 11.9356)],
)
def test_degrees_of_freedom_are_those_of_the_matrix_of_residuals(
    sizes: list[int], expected: float
) -> None:
    """Bell and McCaffrey 2002: the variance of a mean as a quadratic form of cluster effects."""
    share = np.array(sizes) / sum(sizes)
    form = np.zeros((len(share), len(share)))
    for own, weight in zip(np.eye(len(share)), share, strict=True):
        residual = weight * (own - share)
        form += np.outer(residual, residual) / (1 - weight)
    degrees = np.trace(form) ** 2 / np.trace(form @ form)
    assert degrees == pytest.approx(expected, abs=1e-4)
    strata = np.zeros(len(sizes), np.int64)
    loads = 7.0 * np.array([sizes, sizes])
    assert degrees_of_freedom(loads, strata) == pytest.approx([degrees] * 2)
    both = np.hstack([loads, loads])
    two = degrees_of_freedom(both, np.repeat([0, 1], len(sizes)))
    assert two == pytest.approx([2 * degrees] * 2)


@pytest.mark.parametrize(
    ("values", "skewed"), [([0.0] * 19 + [9.0], True), ([0.0, 1.0] * 10, False)]
)
def test_a_mean_of_a_few_large_values_is_marked(values: list[float], skewed: bool) -> None:
    axes = pl.DataFrame({"item": [f"{at:02}" for at in range(20)]})
    step = pl.DataFrame({"model": ["m"], "run": ["main"], "step": [0]})
    items = array_items(step, axes, np.array([values]))
    assert summarise(items, [Measure(name="x")])["skewed"].to_list() == [skewed]
    assert summarise(items, [Measure(name="x", share=True)])["skewed"].to_list() == [False]
