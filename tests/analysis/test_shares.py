"""Intervals of shares, against the binomial test of SciPy and the formula at its ends."""

import numpy as np
import pytest
from scipy.stats import binomtest

from logitbank.analysis.stats.shares import wilson

pytestmark = pytest.mark.numerical

SIZES = (1, 10, 96, 192, 658, 1584, 100_003)


@pytest.mark.parametrize("n", SIZES)
def test_none_and_all_end_at_exactly_0_and_1(n: int) -> None:
    """There the other end is z² / (n + z²) away; subtracting square roots gave 1e-17."""
    z2 = 3.841458820694124
    low, high = wilson([0.0, 1.0], [n, n])
    assert (low[0], high[1]) == (0.0, 1.0)
    assert high[0] == pytest.approx(z2 / (n + z2), rel=1e-12)
    assert low[1] == pytest.approx(n / (n + z2), rel=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_it_is_that_of_scipy(n: int) -> None:
    counts = sorted({0, 1, n // 3, n // 2, n - 1, n})
    low, high = wilson(np.array(counts) / n, np.full(len(counts), n))
    for at, count in enumerate(counts):
        expected = binomtest(count, n).proportion_ci(method="wilson")
        assert low[at] == pytest.approx(expected.low, rel=1e-9, abs=1e-15)
        assert high[at] == pytest.approx(expected.high, rel=1e-9)


def test_no_examples_have_no_interval() -> None:
    assert np.isnan(wilson([0.0, float("nan")], [0, 0])).all()
