import numpy as np
import pytest
from scipy.stats import t

from bench.errors import runs_coverage
from logitbank.analysis.stats.bootstrap import cluster_counts
from logitbank.analysis.stats.multibootstrap import Examples, multibootstrap

pytestmark = pytest.mark.numerical

SEEDS, TUNINGS, EXAMPLES = 25, 5, 60


def drawn(runs: int, *, seeds: int = SEEDS, offset: float = 0.0) -> np.ndarray:
    """(seeds, tunings, examples) correct or not, of seeds and examples that differ."""
    rng = np.random.default_rng(runs)
    skill = offset + rng.normal(0, 0.5, (seeds, 1, 1)) + rng.normal(0, 1, (1, 1, EXAMPLES))
    return (skill + rng.logistic(size=(seeds, TUNINGS, EXAMPLES)) > 0).astype(float)


def mean(clusters: np.ndarray | None = None) -> Examples:
    clusters = np.arange(EXAMPLES) if clusters is None else clusters
    return Examples(clusters, np.zeros(len(clusters), np.int64))


def loops(base: np.ndarray, expt: np.ndarray, draws: list[tuple[list[int], ...]]) -> list[float]:
    """L' − L of the paper, one resample after another: seeds of both sides, and examples."""

    def score(values: np.ndarray, seeds: list[int], examples: list[int]) -> float:
        of_seeds = []
        for seed in seeds:
            of_tunings = []
            for tuning in range(TUNINGS):
                total = 0.0
                for example in examples:
                    total += values[seed, tuning, example]
                of_tunings.append(total / len(examples))
            of_seeds.append(sum(of_tunings) / TUNINGS)
        return sum(of_seeds) / len(seeds)

    return [score(expt, b, examples) - score(base, a, examples) for a, b, examples in draws]


def listed(counts: np.ndarray) -> list[int]:
    return np.repeat(np.arange(len(counts)), counts.astype(int)).tolist()


@pytest.mark.parametrize(("paired", "others"), [(True, 25), (False, 25), (False, 5)])
def test_resamples_are_those_of_plain_loops(paired: bool, others: int) -> None:
    base, expt = drawn(0), drawn(1, seeds=others, offset=0.3)
    found = multibootstrap(
        base.mean(axis=1), expt.mean(axis=1), examples=mean(), paired=paired, resamples=20, seed=7
    )
    examples = cluster_counts(np.arange(EXAMPLES), resamples=20, seed=7)
    seeds = cluster_counts(np.arange(SEEDS), resamples=20, seed=8)
    other_seeds = seeds if paired else cluster_counts(np.arange(others), resamples=20, seed=9)
    resamples = [
        (listed(a), listed(b), listed(e))
        for a, b, e in zip(seeds, other_seeds, examples, strict=True)
    ]
    np.testing.assert_allclose(found.draws, loops(base, expt, resamples), atol=1e-12)
    assert found.value == pytest.approx(expt.mean() - base.mean(), abs=1e-12)


@pytest.mark.parametrize("paired", [True, False])
def test_percentiles_are_those_of_independent_loops(paired: bool) -> None:
    """The resamples are drawn here, as in the paper's pseudocode, by another generator."""
    rng = np.random.default_rng(11)
    base, expt = drawn(0), drawn(1, offset=0.3)
    resamples = []
    for _ in range(300):
        seeds = rng.choice(SEEDS, SEEDS).tolist()
        others = seeds if paired else rng.choice(SEEDS, SEEDS).tolist()
        resamples.append((seeds, others, rng.choice(EXAMPLES, EXAMPLES).tolist()))
    expected = loops(base, expt, resamples)
    found = multibootstrap(
        base.mean(axis=1), expt.mean(axis=1), examples=mean(), paired=paired, resamples=4000
    )
    error = float(np.std(expected))
    assert found.draws.std() == pytest.approx(error, rel=0.15)
    low, high = np.quantile(expected, [0.025, 0.975])
    assert found.percentile_low == pytest.approx(low, abs=0.4 * error)
    assert found.percentile_high == pytest.approx(high, abs=0.4 * error)


def test_clusters_and_parts_are_drawn_together() -> None:
    """A difference of two parts, with both sentences of a pair in one cluster."""
    values = np.random.default_rng(3).normal(size=(4, 24))
    pairs, sides = np.repeat(np.arange(12), 2), np.tile([0, 1], 12)
    found = multibootstrap(values, examples=Examples(pairs, sides, (1.0, -1.0)))
    same = multibootstrap(values[:, ::2] - values[:, 1::2], examples=mean(np.arange(12)))
    np.testing.assert_allclose(found.draws, same.draws, atol=1e-12)
    np.testing.assert_allclose(found[:5], same[:5], atol=1e-12)


def test_variances_are_those_of_the_analysis_of_variance() -> None:
    """Two-way layout: mean squares of runs, of examples and of the rest, per mean."""
    values = drawn(5).mean(axis=1)
    r, c = values.shape
    runs, examples = values.mean(axis=1), values.mean(axis=0)
    rest = values - runs[:, None] - examples + values.mean()
    of_runs, of_examples = runs.var(ddof=1) / r, examples.var(ddof=1) / c
    both = (rest**2).sum() / ((r - 1) * (c - 1) * r * c)
    variance = of_runs + of_examples - both
    degrees = variance**2 / (of_runs**2 / (r - 1) + of_examples**2 / (c - 1))
    half = t.ppf(0.975, degrees) * variance**0.5
    found = multibootstrap(values, examples=mean(), resamples=20_000)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.02)


def test_too_few_runs_or_examples_have_no_interval() -> None:
    values = np.random.default_rng(0).normal(size=(3, 10))
    for number in (1, 9):
        few = multibootstrap(values[:, :number], examples=mean(np.arange(number)))
        assert few.value == pytest.approx(values[:, :number].mean())
        assert np.isnan(few[1:5]).all()
    assert np.isnan(multibootstrap(values[:2], examples=mean(np.arange(10))).low)
    assert np.isnan(multibootstrap(np.ones((3, 10)), examples=mean(np.arange(10))).low)
    assert np.isfinite(multibootstrap(values, examples=mean(np.arange(10)))[:5]).all()


def test_coverage_of_25_and_5_seeds() -> None:
    """The short form of `python -m bench errors`: three standard errors of 200 data sets."""
    models = {"both": (0.3, 0.5)}
    for rate in runs_coverage((25, 5), models, data_sets=200, resamples=200):
        if rate.bound:  # the t interval
            assert 0.93 - 3 * rate.error <= rate.share <= 0.97 + 3 * rate.error, rate
