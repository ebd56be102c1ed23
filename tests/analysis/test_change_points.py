"""One change in mean: its place, its p value, its uncertainty, and what is no change."""

import itertools

import numpy as np
import pytest

from logitbank.analysis.stats.change_points import change_point

pytestmark = pytest.mark.numerical

JUMP = [0.0, 0.1, 0.0, 0.1, 0.9, 1.0, 0.9, 1.0]


def loop(values: list[float]) -> tuple[list[int], list[float]]:
    """Sums of squares of every split, one by one."""
    places = list(range(2, len(values) - 1))
    y = np.array(values)
    return places, [
        float(((y[:k] - y[:k].mean()) ** 2).sum() + ((y[k:] - y[k:].mean()) ** 2).sum())
        for k in places
    ]


def test_a_jump_is_found_where_it_is() -> None:
    found = change_point(JUMP)
    assert found is not None
    assert found.at == 4
    assert (found.mean_before, found.mean_after) == (pytest.approx(0.05), pytest.approx(0.95))
    assert (found.first, found.last) == (4, 4)
    assert found.probability > 0.99
    assert found.bic_over_line > 0


def test_place_and_posterior_are_those_of_a_loop_over_splits() -> None:
    values = np.random.default_rng(3).normal(size=12) + np.repeat([0, 1.2], [5, 7])
    places, within = loop(values.tolist())
    weight = [(k * (12 - k)) ** -0.5 * s ** (-10 / 2) for k, s in zip(places, within, strict=True)]
    found = change_point(values)
    assert found is not None
    assert found.at == places[int(np.argmin(within))]
    at = places.index(found.at)
    assert found.probability == pytest.approx(weight[at] / sum(weight))
    ranked = sorted(range(len(places)), key=lambda i: -weight[i])
    inside = []
    for i in ranked:
        inside.append(places[i])
        if sum(weight[j] for j in ranked[: len(inside)]) >= 0.95 * sum(weight):
            break
    assert (found.first, found.last) == (min(inside), max(inside))


def test_p_is_the_share_of_orders_that_split_as_well() -> None:
    values = [0.0, 1.0, 0.5, 3.0, 2.0, 4.0]
    least = min(loop(values)[1])
    orders = list(itertools.permutations(values))
    exact = np.mean([min(loop(list(order))[1]) <= least + 1e-9 for order in orders])
    found = change_point(values, permutations=5000)
    assert found is not None
    assert found.p == pytest.approx(exact, abs=0.02)


def test_noise_has_no_small_p_and_a_wide_set() -> None:
    p = []
    for seed in range(40):
        found = change_point(np.random.default_rng(seed).normal(size=20), permutations=200)
        assert found is not None
        p.append(found.p)
    assert 0.25 < np.mean(p) < 0.75
    assert np.mean(np.array(p) < 0.05) < 0.2


def walk(n: int, seed: int, *, memory: float = 1.0) -> np.ndarray:
    """A curve that wanders: each point is `memory` of the one before and a step."""
    steps = np.random.default_rng(seed).normal(0, 0.02, n)
    y = np.zeros(n)
    for at in range(1, n):
        y[at] = memory * y[at - 1] + steps[at]
    return y


@pytest.mark.parametrize("n", [8, 24, 60])
@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9, 1.0])
def test_a_curve_that_wanders_is_told_to_change_once_in_twenty_at_most(
    n: int, memory: float
) -> None:
    p = [change_point(walk(n, seed, memory=memory), permutations=1) for seed in range(600)]
    told = np.mean([one is not None and one.p_wander <= 0.05 for one in p])
    assert told < 0.05 + 2.5 * (0.05 * 0.95 / 600) ** 0.5


def test_the_order_of_points_is_told_to_matter_in_most_curves_that_wander() -> None:
    p = [change_point(walk(24, seed), permutations=200) for seed in range(60)]
    assert np.mean([one is not None and one.p <= 0.05 for one in p]) > 0.6


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_a_jump_of_many_times_the_wandering_is_found_every_time(memory: float) -> None:
    for seed in range(60):
        y = walk(24, seed, memory=memory)
        y[16:] += 0.6
        found = change_point(y, permutations=1)
        assert found is not None
        assert found.p_wander <= 0.05
        assert found.at == 16


def test_p_of_wandering_is_the_share_of_walks_that_split_as_well() -> None:
    values = [0.0, 0.1, 0.0, 0.5, 0.4, 0.5, 0.6]

    def share(y: np.ndarray) -> float:
        return min(loop(y.tolist())[1]) / float(((y - y.mean()) ** 2).sum())

    rng = np.random.default_rng(7)
    own = share(np.array(values))
    exact = np.mean([share(rng.normal(size=7).cumsum()) <= own for _ in range(4000)])
    found = change_point(values)
    assert found is not None
    assert found.p_wander == pytest.approx(exact, abs=0.015)


def test_a_slow_rise_has_a_small_p_but_a_line_fits_it_better() -> None:
    found = change_point(np.arange(20) + np.random.default_rng(0).normal(0, 0.5, 20))
    assert found is not None
    assert found.p < 0.01
    assert found.p_wander > 0.05
    assert found.bic_over_line < 0


def test_location_and_scale_do_not_matter() -> None:
    one, other = change_point(JUMP), change_point([1e6 + 1e-3 * v for v in JUMP])
    assert one is not None
    assert other is not None
    assert (one.at, one.p) == (other.at, other.p)
    assert other.bic_over_line == pytest.approx(one.bic_over_line, rel=1e-3)


@pytest.mark.parametrize(
    "values", [[], [1, 2, 3, 4, 5], [1.0] * 9, [0.1] * 7, [0, 1, 2, 3, float("nan"), 5, 6]]
)
def test_there_is_nothing_to_find_in_short_flat_or_broken_curves(values: list[float]) -> None:
    assert change_point(values) is None
