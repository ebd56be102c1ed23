"""A summary of a few checkpoints at a time is that of all at once, to the last bit."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.frames.items import Items, array_items, gather_items
from logitbank.analysis.stats.measure import Measure, Smooth
from logitbank.analysis.stats.summary import Summary, measures_table, summarise

CHECKPOINTS = pl.DataFrame(
    [("a", "seed1", step) for step in (0, 1, 8, 64, 512, None)]
    + [("a", "seed2", step) for step in (0, 8)]
    + [("b", "main", step) for step in (None,)],
    schema={"model": pl.String, "run": pl.String, "step": pl.Int64},
    orient="row",
)
MEASURES = [
    Measure(name="mean", plus=("x",)),
    Measure(name="apart", plus=("x",), minus=("y",), scale=-100.0),
    Measure(name="share", plus=("z",), share=True),
    Measure(name="shares", plus=("z",), minus=("w",), share=True),
    Measure(name="perplexity", plus=("y",), link="exp"),
    Measure(name="product", plus=("x", "y"), functions=lambda means: product(means)),
]


def product(means: np.ndarray) -> Sequence[Smooth]:
    a, b = means.T
    return [Smooth(a * b, np.stack([b, a], axis=1))]


def drawn(*, groups: bool) -> Items:
    """Items of four parts in two orders; some without a value, and a checkpoint without any."""
    rng = np.random.default_rng(0)
    axes = pl.DataFrame(
        [
            (part, str(order), f"c{item % 37:02}", f"i{item:03}", "ABC"[item % 3], str(item % 2))
            for part in "wxyz"
            for order in range(2)
            for item in range(90)
        ],
        schema=["part", "order", "cluster", "item", "kind", "template"],
        orient="row",
    )
    axes = axes if groups else axes.drop("kind", "template")
    values = rng.normal(size=(len(CHECKPOINTS), len(axes)))
    shares = axes["part"].is_in(["w", "z"]).to_numpy()
    values[:, shares] = values[:, shares] > 0
    values[rng.random(values.shape) < 0.1] = np.nan
    values[[4, 7]] = rng.normal(size=(2, len(axes)))  # without a missing value
    values[0] = np.nan  # so that the first checkpoint with a value is the second
    return array_items(CHECKPOINTS, axes, values)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("within", [None, (), ("template",)])
def test_few_checkpoints_at_a_time_have_the_bits_of_all(
    size: int, within: Sequence[str] | None
) -> None:
    items = drawn(groups=within is not None)
    rows = [np.arange(start, min(start + size, 9)) for start in range(0, 9, size)]
    summary = Summary(MEASURES, within=within)
    for own in rows:
        summary.add(items.at(own))
    whole = summarise(items, MEASURES)
    if within is not None:
        whole = measures_table(items, MEASURES, within=within)
    assert_frame_equal(summary.table(), whole, check_exact=True)
    steps = whole.filter(model="a", run="seed1").select("step", "baseline_step").unique()
    assert {*steps.rows()} == {(0, 0), *((step, 1) for step in (1, 8, 64, 512, None))}


def test_equal_checkpoints_do_not_change_by_a_bit() -> None:
    """Whether they are summarised with others or alone, and whether or not an item is missing."""
    items = drawn(groups=True)
    for lacking in ([], [4], range(9)):
        values = np.repeat(items.values[[4]], len(CHECKPOINTS), axis=0)
        values[2:4] = items.values[7]
        values[[*lacking], 5] = np.nan
        table = measures_table(items._replace(values=values), MEASURES)
        same = table.filter((pl.col("step") == 512) & (pl.col("measure") != "perplexity"))
        moved = table.filter((pl.col("step") == 64) & (pl.col("measure") == "mean"))
        assert {*same["from_baseline"]} == {0.0}
        assert (moved["from_baseline"] != 0).all()
        assert (same["from_baseline_low"] == -same["from_baseline_high"]).all()


def test_a_run_whose_items_change_is_compared_over_what_both_checkpoints_have() -> None:
    """The second checkpoint lacks an item of the first, and has another."""
    rows = [("m", "", 0, item, float(at)) for at, item in enumerate("abcdefghijkl")]
    rows += [("m", "", 8, item, 2.0 * at) for at, item in enumerate("bcdefghijklm")]
    columns = ["model", "run", "step", "item", "value"]
    parts = [pl.DataFrame([row for row in rows if row[2] == step], columns, orient="row")
             for step in (0, 8)]  # fmt: skip
    summary = Summary([Measure(name="x")])
    for part in parts:
        summary.add(gather_items([part]))
    last = summary.table().row(-1, named=True)
    assert (last["common"], last["items"]) == (11, 12)
    assert last["from_baseline"] == pytest.approx(sum(2 * n - (n + 1) for n in range(11)) / 11)
    whole = summarise(gather_items(parts), [Measure(name="x")]).row(-1, named=True)
    assert whole["from_baseline"] == pytest.approx(last["from_baseline"])
    assert whole["from_baseline_low"] == pytest.approx(last["from_baseline_low"])
