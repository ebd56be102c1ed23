"""Measures that are functions of means: against the jackknife, and against means of differences."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from scipy.stats import t

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, array_items
from logitbank.analysis.stats.measure import Measure, Smooth
from logitbank.analysis.stats.summary import paired_differences, summarise

pytestmark = pytest.mark.numerical
ITEMS = 400
STEPS = pl.DataFrame({"model": "m", "run": "main", "step": [0, 8]})


def product(means: Floats) -> Sequence[Smooth]:
    a, b = means.T
    return [Smooth(a * b, np.stack([b, a], axis=1))]


def peak(means: Floats) -> Sequence[Smooth]:
    """The lesser of a mean and its negative."""
    return [Smooth(sign * means[:, 0], np.full((len(means), 1), sign)) for sign in (1.0, -1.0)]


PRODUCT = Measure(name="product", plus=("b", "a"), functions=product)
DIFFERENCE = Measure(name="difference", plus=("a",), minus=("b",))


def difference(means: Floats) -> Sequence[Smooth]:
    return [Smooth(means[:, 0] - means[:, 1], np.tile([1.0, -1.0], (len(means), 1)))]


SAME = Measure(name="same", plus=("a", "b"), functions=difference)
PEAK = Measure(name="peak", plus=("a",), functions=peak)


def drawn(seed: int) -> np.ndarray:
    """(2 steps, 2 parts, items): a step moves both parts; parts of an item go together."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=ITEMS)
    noise = rng.normal(0, 0.5, (2, 2, ITEMS))
    return common + noise + np.array([[2.0, 3.0], [2.5, 2.0]])[:, :, None]


def items(values: np.ndarray) -> Items:
    names = pl.DataFrame({"item": [f"{at:03}" for at in range(values.shape[-1])]})
    axes = pl.concat([names.with_columns(part=pl.lit(part)) for part in ("a", "b")])
    return array_items(STEPS, axes, values.reshape(2, -1))


def jackknife(values: np.ndarray) -> tuple[float, float]:
    """Half the width of a 95 % interval of the product, and of its change, each item left out."""
    n = values.shape[-1]
    left = (values.sum(axis=-1, keepdims=True) - values) / (n - 1)
    products = left[:, 0] * left[:, 1]
    own, moved = (
        t.ppf(0.975, n - 1) * np.sqrt((n - 1) * each.var())
        for each in (products[1], products[1] - products[0])
    )
    return own, moved


def test_a_product_of_means_has_the_interval_of_the_jackknife() -> None:
    values = drawn(0)
    last = summarise(items(values), [PRODUCT]).row(1, named=True)
    means = values.mean(axis=-1)
    value, change = means[1].prod(), means[1].prod() - means[0].prod()
    own, moved = jackknife(values)
    assert last["value"] == pytest.approx(value)
    assert last["high"] - last["low"] == pytest.approx(2 * own, rel=0.01)
    assert last["from_baseline"] == pytest.approx(change)
    bounds = [last["from_baseline_low"], last["from_baseline_high"]]
    assert bounds == pytest.approx([change - moved, change + moved], rel=0.01)
    assert (last["items"], last["clusters"], last["common"]) == (ITEMS, ITEMS, ITEMS)


def test_a_change_is_over_the_items_of_both_checkpoints() -> None:
    values = drawn(1)
    values[1, :, :50] = np.nan
    last = summarise(items(values), [PRODUCT]).row(1, named=True)
    means = values[:, :, 50:].mean(axis=-1)
    assert last["value"] == pytest.approx(means[1].prod())
    assert last["from_baseline"] == pytest.approx(means[1].prod() - means[0].prod())
    assert last["common"] == ITEMS - 50


def test_a_difference_as_a_function_is_the_difference_of_means() -> None:
    a, b = items(drawn(2)), items(drawn(3))
    for one, other in (
        (summarise(a, [SAME]), summarise(a, [DIFFERENCE])),
        (paired_differences(a, b, [SAME]), paired_differences(a, b, [DIFFERENCE])),
    ):
        for name in set(one.columns) & {"value", "low", "high", "from_baseline", "stderr"}:
            expected = other[name].to_list()
            assert one[name].to_list() == pytest.approx(expected, nan_ok=True), name


def test_the_least_of_two_has_the_lesser_ends() -> None:
    values = drawn(4)
    values[0, 0] -= values[0, 0].mean()  # at the peak, and on one side of it
    table = summarise(items(values), [PEAK])
    half = t.ppf(0.975, ITEMS - 1) * values[:, 0].std(axis=1, ddof=1) / np.sqrt(ITEMS)
    mean = values[:, 0].mean(axis=1)
    assert table["value"].to_list() == pytest.approx((-np.abs(mean)).tolist(), abs=1e-12)
    assert table["low"].to_list() == pytest.approx((-np.abs(mean) - half).tolist())
    assert table["high"].to_list() == pytest.approx((-np.abs(mean) + half).tolist())


def test_a_function_of_means_over_option_orders_is_that_of_the_means_over_orders_first() -> None:
    """Each prompt in two orders; one order lacks a part at the second step and does not count."""
    values = np.stack([drawn(1), drawn(2) + 1.0], axis=2)  # (steps, parts, orders, items)
    values[1, 1, 1] = np.nan
    names = pl.DataFrame({"item": [f"{at:03}" for at in range(ITEMS)]})
    axes = pl.concat(
        names.with_columns(part=pl.lit(part), order=pl.lit(order))
        for part in ("a", "b")
        for order in ("0", "1")
    )
    first, last = summarise(array_items(STEPS, axes, values.reshape(2, -1)), [PRODUCT]).iter_rows(
        named=True
    )
    of_orders = values[0].mean(axis=2)  # (parts, orders)
    assert first["value"] == pytest.approx(of_orders.mean(axis=1).prod())
    assert first["sd"] == pytest.approx(of_orders.prod(axis=0).std(ddof=1))
    half, _ = jackknife(values.mean(axis=2)[[0, 0]])
    assert first["high"] - first["low"] == pytest.approx(2 * half, rel=0.01)
    assert (first["items"], first["clusters"]) == (2 * ITEMS, ITEMS)
    assert last["value"] == pytest.approx(values[1, :, 0].mean(axis=1).prod())
    half, _ = jackknife(values[[1, 1], :, 0])
    assert last["high"] - last["low"] == pytest.approx(2 * half, rel=0.01)
    assert (last["items"], last["clusters"]) == (ITEMS, ITEMS)
