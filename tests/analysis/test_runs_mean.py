from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import t

from bench.errors import runs_coverage
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.runs_mean import RunsMean, measure_mean, runs_mean
from logitbank.analysis.stats.summary import Branch, Design

pytestmark = pytest.mark.numerical

SEEDS, TUNINGS, EXAMPLES = 25, 5, 60


def drawn(runs: int, *, seeds: int = SEEDS, offset: float = 0.0) -> np.ndarray:
    """(seeds, tunings, examples) correct or not, of seeds and examples that differ."""
    rng = np.random.default_rng(runs)
    skill = offset + rng.normal(0, 0.5, (seeds, 1, 1)) + rng.normal(0, 1, (1, 1, EXAMPLES))
    return (skill + rng.logistic(size=(seeds, TUNINGS, EXAMPLES)) > 0).astype(float)


def scores(values: np.ndarray, clusters: np.ndarray | None = None, **measure: Any) -> Branch:
    """Of (r, p) values, whose items belong to the parts of the measure in turn."""
    p = values.shape[1]
    parts = [*measure.get("plus", ("",)), *measure.get("minus", ())]
    axes = pl.DataFrame({
        "part": [parts[i % len(parts)] for i in range(p)], "order": "",
        "cluster": [f"{each:03}" for each in (range(p) if clusters is None else clusters)],
        "item": [f"{i:03}" for i in range(p)],
    }).with_row_index("at").sort("part", "cluster")  # fmt: skip
    return Design(axes, Measure(name="x", **measure)).influences(values[:, axes["at"]])


def half(found: RunsMean) -> float:
    assert (found.low + found.high) / 2 == pytest.approx(found.value)
    return (found.high - found.low) / 2


@pytest.mark.parametrize("paired", [True, False])
def test_the_variance_is_that_of_resampled_runs_and_examples(paired: bool) -> None:
    """Resamples of the multibootstrap of Sellam et al. 2022, of both sides and 60 examples."""
    rng = np.random.default_rng(11)
    base, expt = drawn(0).mean(axis=1), drawn(1, offset=0.3).mean(axis=1)
    differences = []
    for _ in range(20_000):
        seeds = rng.integers(SEEDS, size=SEEDS)
        others = seeds if paired else rng.integers(SEEDS, size=SEEDS)
        examples = rng.integers(EXAMPLES, size=EXAMPLES)
        means = expt[others][:, examples].mean() - base[seeds][:, examples].mean()
        differences.append(means)
    found = runs_mean(scores(base), scores(expt), paired=paired)
    assert found.value == pytest.approx(expt.mean() - base.mean(), abs=1e-12)
    # A resample of both contains what both share once more: it is wider, by 7% here.
    assert half(found) == pytest.approx(2.03 * np.std(differences), rel=0.1)


def test_a_mean_of_differences_of_shares_may_be_negative_and_one_with_limits_ends_there() -> None:
    values = (np.random.default_rng(2).random((3, 60)) < np.tile([0.3, 0.7], 30)) * 1.0
    sides = {"plus": ("a",), "minus": ("b",)}
    measure = Measure(name="x", share=True, **sides)
    own = scores(values, **sides)
    found = measure_mean(measure, own, degrees_of_examples=29)
    plain = runs_mean(own, degrees_of_examples=29)
    assert plain.low < plain.value < plain.high < 0
    assert found == plain
    ended = measure_mean(
        replace(measure, limits=(plain.value - 0.01, 1)), own, degrees_of_examples=29
    )
    assert ended == RunsMean(plain.value, plain.value - 0.01, plain.high)


def test_numbers_of_runs_may_differ() -> None:
    base, expt = drawn(0).mean(axis=1), drawn(1, seeds=5).mean(axis=1)
    found = runs_mean(scores(base), scores(expt), paired=False)
    assert found.value == pytest.approx(expt.mean() - base.mean())
    same = runs_mean(scores(base), scores(drawn(1).mean(axis=1)), paired=False)
    assert half(found) > half(same)


def test_both_sentences_of_a_pair_are_one_cluster() -> None:
    values = np.random.default_rng(3).normal(size=(4, 24))
    pairs = np.repeat(np.arange(12), 2)
    found = runs_mean(scores(values, pairs, plus=("a",), minus=("b",)))
    assert found == pytest.approx(runs_mean(scores(values[:, ::2] - values[:, 1::2])))


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
    found = runs_mean(scores(values))
    assert half(found) == pytest.approx(t.ppf(0.975, degrees) * variance**0.5)


def test_too_few_runs_or_examples_have_no_interval() -> None:
    values = np.random.default_rng(0).normal(size=(3, 10))
    for number in (1, 9):
        few = runs_mean(scores(values[:, :number]))
        assert few.value == pytest.approx(values[:, :number].mean())
        assert np.isnan(few[1:]).all()
    assert np.isnan(runs_mean(scores(values[:2])).low)
    assert np.isnan(runs_mean(scores(np.ones((3, 10)))).low)
    assert np.isfinite(runs_mean(scores(values))).all()


def test_coverage_of_25_and_5_seeds() -> None:
    """The short form of `python -m bench errors`: three standard errors of 200 data sets."""
    for rate in runs_coverage((25, 5), {"both": (0.3, 0.5)}, data_sets=200):
        assert 0.93 - 3 * rate.error <= rate.share <= 0.97 + 3 * rate.error, rate


def test_an_interval_of_shares_ends_at_their_bounds() -> None:
    """Three seeds with 40, 37 and 39 of 40 right: t alone is 0.89 to 1.04."""
    values = np.ones((3, 40))
    values[1, :3] = values[2, 0] = 0
    plain, found = runs_mean(scores(values)), runs_mean(scores(values), largest=1.0)
    assert plain.high > 1
    assert 0 < found.low < found.value < found.high < 1
    # Wilson's interval solves (value - p)² = t² V p (1 - p) / (value (1 - value)).
    t = (plain.high - plain.value) / plain.value / (1 - plain.value)
    for end in (found.low, found.high):
        variance = end * (1 - end) * found.value * (1 - found.value) * t**2
        assert (found.value - end) ** 2 == pytest.approx(variance, rel=1e-9)
    percent = runs_mean(scores(100 * values), largest=100.0)
    assert percent == pytest.approx([100 * each for each in found])


def test_equal_seeds_without_an_error_have_the_interval_of_their_examples() -> None:
    found = runs_mean(scores(np.ones((3, 40))), largest=1.0)
    z = t.ppf(0.975, 39) ** 2
    assert (found.low, found.high) == (pytest.approx(40 / (40 + z)), 1.0)
    apart = runs_mean(scores(np.zeros((3, 10))), scores(np.ones((3, 10))), largest=1.0)
    assert np.isnan(apart.low)
