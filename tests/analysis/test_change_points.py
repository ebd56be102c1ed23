"""Change points: their places, p values against random walks, and what is none."""

import math

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.finding import Finding
from logitbank.analysis.results.series import change_findings
from logitbank.analysis.stats.change_points import (
    CHANGE_COLUMNS,
    Changes,
    _random_walks,
    change_points,
    change_rows,
    first_trained,
)
from logitbank.analysis.stats.local_level import RATIOS, LocalLevel, _products

pytestmark = pytest.mark.numerical

JUMP = [0.0, 0.1, 0.0, 0.1, 0.0, 0.1, 0.9, 1.0, 0.9, 1.0, 0.9, 1.0]
PYTHIA = [0, *(2**k for k in range(10)), *(1000 * 2**k for k in range(8)), 143_000]
"""The steps of `--steps log` on Pythia."""
EVERY = 1000 * np.arange(154)
NONE = np.empty((0, len(EVERY)))


def found_in(values: object, steps: object = None, **options: object) -> Changes:
    found = change_points(values, steps, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def loop(values: list[float]) -> tuple[list[int], list[float]]:
    """Sums of squares of every split, one by one."""
    places = list(range(2, len(values) - 1))
    y = np.array(values)
    return places, [
        float(((y[:k] - y[:k].mean()) ** 2).sum() + ((y[k:] - y[k:].mean()) ** 2).sum())
        for k in places
    ]


def statistics(y: np.ndarray) -> np.ndarray:
    """ln(W/S) + ln(W/D) at every place, one by one."""
    places, within = loop(y.tolist())
    whole = float(((y - y.mean()) ** 2).sum())
    jumps = np.diff(y) ** 2
    return np.array(
        [
            math.log(w / whole) + math.log(w / (jumps.sum() - jumps[k - 1]))
            for k, w in zip(places, within, strict=True)
        ]
    )


def test_a_jump_is_found_where_it_is() -> None:
    found = found_in(JUMP)
    (place,) = found.places
    assert (found.kind, place.at, place.first, place.last) == ("change point", 6, 6, 6)
    assert found.means == (pytest.approx(0.05), pytest.approx(0.95))
    assert place.probability > 0.99
    assert found.p_second > 0.05


def test_place_and_posterior_are_those_of_a_loop_over_splits() -> None:
    values = np.random.default_rng(3).normal(size=12) + np.repeat([0, 1.2], [5, 7])
    places, within = loop(values.tolist())
    weight = [(k * (12 - k)) ** -0.5 * s ** (-10 / 2) for k, s in zip(places, within, strict=True)]
    (place,) = found_in(values).places
    assert place.at == places[int(np.argmin(within))]
    assert place.probability == pytest.approx(weight[places.index(place.at)] / sum(weight))
    ranked = sorted(range(len(places)), key=lambda i: -weight[i])
    inside = []
    for i in ranked:
        inside.append(places[i])
        if sum(weight[j] for j in ranked[: len(inside)]) >= 0.95 * sum(weight):
            break
    assert (place.first, place.last) == (min(inside), max(inside))


def test_two_places_are_those_of_a_loop_over_pairs() -> None:
    y = np.repeat([0.0, 12.0, 1.0], [20, 12, 30]) + np.random.default_rng(1).normal(size=62)

    def within(pair: tuple[int, int]) -> float:
        return sum(((part - part.mean()) ** 2).sum() for part in np.split(y, pair))

    pairs = [(a, b) for a in range(2, 59) for b in range(a + 2, 61)]
    found = found_in(y)
    assert tuple(place.at for place in found.places) == min(pairs, key=within)
    assert found.p_second <= 0.05
    assert found.means == pytest.approx(
        [part.mean() for part in np.split(y, min(pairs, key=within))]
    )


def test_p_is_at_least_that_of_walks_that_are_drawn_and_split_one_by_one() -> None:
    """One null worked out by loops: a Gaussian walk, and one change only, which is a bound."""
    values = np.array([0.0, 0.3, 0.0, 0.5, 0.3, 0.5, 0.6, 0.5, 0.2, 0.5])
    rng = np.random.default_rng(7)
    drawn = np.array([statistics(rng.normal(size=10).cumsum()) for _ in range(4000)])
    least = ((drawn - drawn.mean(axis=0)) / drawn.std(axis=0)).min(axis=1)
    own = ((statistics(values) - drawn.mean(axis=0)) / drawn.std(axis=0)).min()
    share = float((least <= own).mean())
    assert 0.1 < share < 0.5
    assert found_in(values).p_random_walk >= share - 0.015


def nulls(steps: np.ndarray, count: int, seed: int) -> dict[str, np.ndarray]:
    """Curves without a change, of another stream of random numbers than the test's."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, len(steps) - 1))
    shrinking = 0.5 * (1 + np.cos(np.pi * steps[1:] / steps[-1]))
    increments = {
        "walk": z,
        "step": z * np.diff(steps) ** 0.5,
        "log step": z * np.diff(np.log1p(steps)) ** 0.5,
        "t3": rng.standard_t(3, size=z.shape),
        "cosine": z * shrinking,
    }
    walks = {name: np.pad(d.cumsum(axis=1), ((0, 0), (1, 0))) for name, d in increments.items()}
    return {**walks, "noise": rng.normal(size=(count, len(steps)))}


@pytest.mark.parametrize("steps", [EVERY[:10], EVERY[:24], np.array(PYTHIA)], ids=len)
def test_curves_without_a_change_have_one_in_one_of_twenty_at_most(steps: np.ndarray) -> None:
    for name, curves in nulls(steps, 200, seed=len(steps)).items():
        findings_for = np.mean([found_in(y, steps).kind != "none" for y in curves])
        assert findings_for < 0.05 + 2.5 * (0.05 * 0.95 / 200) ** 0.5, name


@pytest.mark.parametrize("tau", [10, 300, 5_000])
def test_a_smooth_curve_is_no_change_point_but_may_be_gradual(tau: float) -> None:
    """It was one in 74 to 97 % of curves at Pythia's log-spaced steps."""
    steps = np.array(PYTHIA)
    rng = np.random.default_rng(tau)
    kinds = [
        found_in(1 - np.exp(-steps / tau) + rng.normal(0, 0.1, len(steps)), steps).kind
        for _ in range(50)
    ]
    assert kinds.count("change point") <= 3


def test_a_gradual_rise_has_the_steps_of_its_slope() -> None:
    steps = np.array(PYTHIA)
    logistic = 1 / (1 + np.exp(-(np.log1p(steps) - np.log1p(512)) / 0.4))
    found = found_in(2 + 3 * logistic + np.random.default_rng(0).normal(0, 0.1, 20), steps)
    assert found.kind == "gradual"
    assert found.bic_over_logistic < 0
    assert found.slope is not None
    # Of its way, 10 % and 90 % are a factor of 9 ** 0.4 from 513.
    assert found.slope.first_step == pytest.approx(513 / 9**0.4, rel=0.3)
    assert found.slope.last_step == pytest.approx(513 * 9**0.4, rel=0.3)
    assert (found.slope.before, found.slope.after) == (
        pytest.approx(2, abs=0.2), pytest.approx(5, abs=0.2)
    )  # fmt: skip


def kinds(curves: np.ndarray, steps: np.ndarray = EVERY) -> list[list[dict[str, object]]]:
    return [change_rows(steps.tolist(), y, NONE[:, : len(steps)]) for y in curves]


@pytest.mark.parametrize("untrained", [0.0, 6.0, -6.0])
def test_a_later_change_is_found_wherever_the_untrained_level_is(untrained: float) -> None:
    """Step 0 lies apart, and with it the next three checkpoints."""
    curves = np.random.default_rng(2).normal(size=(3, len(EVERY))) + 6 * (EVERY >= 80_000)
    curves[:, :4] += untrained
    for rows in kinds(curves):
        near = [row for row in rows if abs(int(str(row["step"])) - 80_000) <= 1_000]
        assert near, rows
        assert near[0]["kind"] == "change point"


@pytest.mark.parametrize("second", [6.0, -6.0])
def test_two_equal_shifts_do_not_hide_each_other(second: float) -> None:
    shifts = 6 * (EVERY >= 50_000) + second * (EVERY >= 100_000)
    curves = np.random.default_rng(4).normal(size=(4, len(EVERY))) + shifts
    found = [[row["step"] for row in rows] for rows in kinds(curves)]
    near = [len(s) == 2 and s[0] in range(48_000, 53_000) and s[1] in range(98_000, 103_000)
            for s in found]  # fmt: skip
    assert all(near)


def test_the_untrained_phase_ends_where_a_checkpoint_differs_from_step_0() -> None:
    draws = np.random.default_rng(0).normal(0, 0.01, (400, 50)) + np.r_[0, 0, 0, 1, np.ones(46)]
    steps = list(range(0, 50_000, 1000))
    assert first_trained(steps, draws) == 3
    assert first_trained(steps, draws[:0]) == 1
    assert first_trained([10, *steps[1:]], draws) == 0
    # What first differs at the middle of the run is a change, and no end of an untrained phase.
    late = draws - np.r_[0, 0, 0, np.ones(22), np.zeros(25)]
    assert first_trained(steps, late) == 1


def test_the_search_begins_after_the_untrained_phase() -> None:
    values = np.array([*JUMP, *JUMP[::-1]]) + np.arange(24) % 3 * 0.01
    trained = np.tile(np.arange(24.0) >= 12, (400, 1)).astype(float)
    steps = [*range(13), *range(201, 212)]
    (row,) = change_rows(steps, values, trained)
    assert (row["from_step"], row["checkpoints"], row["step"]) == (12, 12, steps[18])
    trained = np.tile(np.arange(24.0) >= 20, (400, 1)).astype(float)
    (none,) = change_rows([*range(21), 301, 302, 303], values, trained)
    assert none == {"from_step": 20, "last_step": 303, "checkpoints": 4}


def test_p_does_not_depend_on_the_seed_nor_on_what_was_tested_before() -> None:
    rng = np.random.default_rng(8)
    curves = 4.2 * (np.arange(24) >= 12) + rng.normal(size=(25, 24))
    found = [found_in(y) for y in curves]
    _random_walks.cache_clear()
    assert found_in(curves[-1]).p_random_walk == found[-1].p_random_walk
    findings_for = [one.p_random_walk <= 0.05 for one in found]
    assert 0 < sum(findings_for) < len(findings_for)
    for y, one in zip(curves, found, strict=True):
        # Either p is clearly on one side, or it is from 100,000 walks.
        assert abs(one.p_random_walk - 0.05) > 4 * one.p_error or one.p_error < 0.0008
        other = found_in(y, seed=1)
        error = math.hypot(other.p_error, one.p_error)
        assert abs(other.p_random_walk - one.p_random_walk) < 5 * error + 0.001


def test_location_and_scale_do_not_matter() -> None:
    one, other = found_in(JUMP), found_in([1e6 + 1e-3 * v for v in JUMP])
    assert [place.at for place in one.places] == [place.at for place in other.places]
    assert one.p_random_walk == other.p_random_walk


@pytest.mark.parametrize(
    "values", [[], [1, 2, 3, 4, 5], [1.0] * 9, [0.1] * 7, [0, 1, 2, 3, float("nan"), 5, 6]]
)
def test_short_flat_or_broken_curves_have_no_change(values: list[float]) -> None:
    assert change_points(values) is None


def findings_for(row: dict[str, object]) -> list[Finding]:
    table = pl.DataFrame([row], schema=CHANGE_COLUMNS)
    return list(change_findings(table, "Δ", form="+.1f", figure="gap", series=("m", "main")))


def test_findings_give_the_shift_its_range_and_its_p() -> None:
    about = {"from_step": 0, "last_step": 90, "checkpoints": 10}
    test = {"p_random_walk": 0.0312, "p_error": 0.0017, "mean_before": 0.1, "mean_after": 0.5}
    place = {"before": 30, "step": 40, "earliest": 30, "latest": 50}
    (shift,) = findings_for({"kind": "change point", **place, **test, **about})
    assert (shift.value, shift.baseline) == (0.4, "0.1 before")
    assert shift.n == "10 checkpoints from step 0 to 90"
    assert "between steps 30 and 40 (95% set: 30 to 50; p = 0.031 ± 0.002" in shift.text
    (gradual,) = findings_for({"kind": "gradual", **place, "step": None, **test, **about})
    assert (gradual.value, "from step 30 to 50" in gradual.text) == (0.4, True)
    (none,) = findings_for({"kind": "none", **place, **test, **about})
    assert none.value is None
    (few,) = findings_for({**about, "from_step": 60, "checkpoints": 4})
    assert few.text == "Δ: no search for change points (4 trained checkpoints; 6 are needed)"
    assert findings_for({**about, "from_step": 90, "checkpoints": 1}) == []


def dense_likelihood(y: np.ndarray, shifts: tuple[int, ...]) -> float:
    """The largest log-likelihood over the ratios, from the covariance matrix of differences."""
    n = len(y)
    noise = 2 * np.eye(n - 1) - np.eye(n - 1, k=1) - np.eye(n - 1, k=-1)
    best = -math.inf
    for ratio in RATIOS:
        covariance = np.eye(n - 1) if ratio == math.inf else ratio * np.eye(n - 1) + noise
        lower = np.linalg.cholesky(covariance)
        left = np.linalg.solve(lower, np.diff(y))
        if shifts:
            jumps = np.linalg.solve(lower, np.eye(n - 1)[:, [k - 1 for k in shifts]])
            left = left - jumps @ np.linalg.lstsq(jumps, left, rcond=None)[0]
        determinant = 2 * np.log(np.diag(lower)).sum()
        best = max(best, -((n - 1) * math.log(left @ left) + determinant) / 2)
    return best


@pytest.mark.parametrize("ratio", [r for r in RATIOS if np.isfinite(r)])
def test_products_of_shifts_are_entries_of_an_inverse(ratio: float) -> None:
    n = 40
    neighbours = np.eye(n - 1, k=1) + np.eye(n - 1, k=-1)
    exact = np.linalg.inv((ratio + 2) * np.eye(n - 1) - neighbours)
    first, second = np.array([2, 39, 20]), np.arange(1, n)
    products = _products(ratio, first[:, None], second, n)
    np.testing.assert_allclose(products, exact[first - 1][:, second - 1], rtol=1e-10)


def test_likelihood_ratios_are_those_of_covariance_matrices() -> None:
    rng = np.random.default_rng(5)
    y = rng.normal(size=14) + 0.5 * rng.normal(size=14).cumsum() + 3 * (np.arange(14) >= 8)
    level = LocalLevel(np.arange(2, 13), 14)
    one, _ = level.both(y[None])
    none = dense_likelihood(y, ())
    at_best = max(dense_likelihood(y, (k,)) for k in range(2, 13))
    assert -one[0, 0] == pytest.approx(at_best - none, rel=1e-9)
    given = dense_likelihood(y, (8,))
    second = max(dense_likelihood(y, (8, k)) for k in range(2, 13) if abs(k - 8) >= 2)
    assert -level.second(y[None], 8)[0, 0] == pytest.approx(second - given, rel=1e-9)


@pytest.mark.parametrize("noise", [2, 4])
def test_a_random_walk_with_noise_at_each_checkpoint_is_no_change(noise: int) -> None:
    """The random-walk statistic alone calls 43 and 63 % of such curves changed."""
    rng = np.random.default_rng(noise)
    walks = rng.normal(size=(12, 154)).cumsum(axis=1)
    curves = walks + noise * rng.normal(size=walks.shape)
    assert sum(found_in(curve, EVERY).kind != "none" for curve in curves) <= 2
