"""Trade-offs: joining curves, choice, change between checkpoints, and their intervals."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from logitbank.analysis.charts.chart import chart_caption, legend_names
from logitbank.analysis.families.fairness import DELTA as GAP
from logitbank.analysis.families.tradeoff import FAMILY, PERFORMANCE
from logitbank.analysis.families.tradeoff.metric import (
    TradeOff,
    frame_quantity,
    trade_off,
    tradeoff_metric,
)
from logitbank.analysis.families.tradeoff.tables import PAIR, SMALLEST, Quantity
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.items import array_items
from logitbank.errors import UsageError

pytestmark = pytest.mark.numerical

STEPS = [1000, 2000, 3000, 4000, 5000, 6000]
ACC = [0.10, 0.30, 0.45, 0.48, 0.50, 0.49]
DELTA = [0.01, 0.05, -0.20, 0.06, 0.40, 0.73]


def side(values: list[float], *, steps: list[int] = STEPS, **columns: object) -> pl.DataFrame:
    frame = pl.DataFrame({"step": steps, "value": values}, schema_overrides={"step": pl.Int64})
    return frame.with_columns(model=pl.lit("m")).with_columns(
        **{name: value if isinstance(value, pl.Series) else pl.lit(value)
           for name, value in columns.items()}
    )  # fmt: skip


def small(**options: object) -> TradeOff:
    return tradeoff_metric(side(ACC), side(DELTA), **options)  # type: ignore[arg-type]


def choice_of(result: TradeOff) -> dict[str, Any]:
    (row,) = result.pairs.filter(choice=SMALLEST).rows(named=True)
    return row


def pair_of(result: TradeOff) -> dict[str, Any]:
    (row,) = result.pairs.filter(choice=PAIR).rows(named=True)
    return row


def found_in(result: TradeOff, text: str) -> Finding:
    """The finding of the first series that has this text."""
    return next(each for each in FAMILY.findings(result)[1:] if text in each.text)


def test_curves_are_joined_on_the_steps_that_both_have() -> None:
    result = tradeoff_metric(side(ACC), side([*DELTA[2:], 9.0], steps=[*STEPS[2:], 7000]))
    assert result.tradeoff["step"].to_list() == [3000, 4000, 5000, 6000]
    assert result.tradeoff["gap"].to_list() == [0.20, 0.06, 0.40, 0.73]
    assert result.tradeoff["delta"].to_list() == [-0.20, 0.06, 0.40, 0.73]
    assert result.tradeoff["run"].unique().to_list() == ["main"]


@pytest.mark.parametrize(
    ("max_accuracy_loss", "step"),
    [(0, 5000), (1, 5000), (2, 4000), (19.9, 4000), (20, 2000), (100, 1000)],
)
def test_the_smallest_gap_within_the_allowance_is_chosen(
    max_accuracy_loss: float, step: int
) -> None:
    row = choice_of(small(max_accuracy_loss=max_accuracy_loss))
    assert (row["before"], row["after"]) == (5000, step)
    assert row["max_accuracy_loss"] == max_accuracy_loss
    assert row["performance_change"] == pytest.approx(100 * (ACC[STEPS.index(step)] - 0.50))


def test_of_equally_good_checkpoints_the_fairest_is_the_best() -> None:
    choices = tradeoff_metric(
        side([0.5, 0.5, 0.4] * 2), side([0.3, 0.2, 0.1] * 2), max_accuracy_loss=0
    ).pairs
    assert choices.select("before", "after", "delta_after").row(0) == (2000, 2000, 0.2)
    alike = tradeoff_metric(side([0.5] * 6), side([0.2] * 6)).pairs
    assert alike.select("before", "after").row(0) == (1000, 1000)


def test_a_selection_reports_the_number_of_candidates_and_neighbouring_scores() -> None:
    accuracy, gap = [0.1, 0.49, 0.50, 0.49, 0.3, 0.47], [0.0, 0.3, 0.2, 0.05, 0.01, 0.1]
    found = tradeoff_metric(side(accuracy), side(gap), max_accuracy_loss=1)
    row = choice_of(found)
    assert (row["after"], row["searched"]) == (4000, 3)  # 0.49, 0.50 and 0.49
    assert row["fairness_low"] is None, "no interval of what was chosen"
    choice = found_in(found, "Smallest gap within 1 point of")
    assert (choice.value, choice.n) == (0.05, "3 checkpoints searched")
    assert "0.2 and 0.01 at the neighbouring checkpoints" in choice.baseline
    found = tradeoff_metric(side(accuracy), side(gap), max_accuracy_loss=100)
    assert (choice_of(found)["after"], choice_of(found)["searched"]) == (1000, 6)
    assert "best; 0.3 at the" in found_in(found, "Smallest gap").baseline


def test_the_published_change_of_fairness_comes_out() -> None:
    """A gap of 0.73 that becomes 0.05: 93.2 %; the reported 92.5 % is within the rounding."""
    row = pair_of(small(pair=(6000, 2000)))
    assert row["fairness_change"] == pytest.approx(100 * 0.68 / 0.73)
    inside = tradeoff_metric(
        side(ACC), side([*DELTA[:1], 0.0545, *DELTA[2:5], 0.727]), pair=(6000, 2000)
    )
    assert pair_of(inside)["fairness_change"] == pytest.approx(92.5, abs=0.05)


def test_the_published_change_is_a_finding() -> None:
    performance = side([0.500, 0.517, 0.5, 0.5, 0.5, 0.5])
    found = tradeoff_metric(performance, side([0.0545, 0.727, 1, 1, 1, 1]), pair=(2000, 1000),
                     metric="LAMBADA accuracy")  # fmt: skip
    fairness, cost = (
        found_in(found, "Fairness increase"),
        found_in(found, "Change of LAMBADA accuracy"),
    )
    assert (fairness.number, cost.number) == ("+92.5%", "−1.7")
    assert FAMILY.findings(found)[0].text == (
        "Step 1,000 instead of 2,000 costs 1.7 points of LAMBADA accuracy and closes 93% of the "
        "gap (0.727 → 0.0545)."
    )


def test_curves_that_rise_and_fall_say_so() -> None:
    able = side([0.05, 0.30, 0.95, 0.60, 0.40, 0.06], stderr=0.01)
    found = tradeoff_metric(able, side([0.02, 0.1, -0.7, 0.3, 0.1, 0.01], stderr=0.01),
                            max_accuracy_loss=100)  # fmt: skip
    accuracy, gap = found_in(found, "Acc at step 6,000"), found_in(found, "Gap at step 6,000")
    assert gap.extreme == "lowest −0.700 at step 3,000 and highest +0.300 at step 4,000"
    assert (accuracy.number, accuracy.extreme) == ("6.0%", "highest 95.0% at step 3,000")
    flat = FAMILY.findings(tradeoff_metric(side([0.5] * 6, stderr=0.01), side([0.2] * 6)))
    assert not any(each.extreme for each in flat)


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((4000, 2000), "costs 18.0 points of acc and closes 17% of the gap (0.06 → 0.05)."),
        ((2000, 4000), "gains 18.0 points of acc and widens the gap by 20% (0.05 → 0.06)."),
    ],
)
def test_a_pair_tells_what_was_gained_and_lost(pair: tuple[int, int], text: str) -> None:
    assert FAMILY.findings(small(pair=pair))[0].text.endswith(text)


def test_a_headline_claims_nothing_that_its_interval_does_not() -> None:
    """A gap of 0.06 becomes 0.05 with an error of 0.02; accuracy loses 18 points, or errs by 20."""
    gap = side(DELTA, stderr=0.02)
    found = tradeoff_metric(side(ACC, stderr=0.01), gap, pair=(4000, 2000))
    text = FAMILY.findings(found)[0].text
    assert "costs 18.0 points of acc and changes the gap by an uncertain share (95% CI −" in text
    assert "closes" not in text
    assert "widens" not in text
    found = tradeoff_metric(side(ACC, stderr=0.2), side(DELTA, stderr=0.001), pair=(6000, 2000))
    text = FAMILY.findings(found)[0].text
    assert "costs or gains acc (95% CI −" in text
    assert "closes 93% of the gap" in text


def test_standard_errors_give_normal_intervals() -> None:
    found = tradeoff_metric(side(ACC, stderr=0.01), side(DELTA, stderr=0.02), pair=(6000, 2000))
    row = pair_of(found)
    half = 1.959964 * math.sqrt(2)  # two independent errors of one point each
    assert row["performance_change"] == pytest.approx(-19)
    assert row["performance_low"] == pytest.approx(-19 - half)
    assert row["performance_high"] == pytest.approx(-19 + half)
    # Delta method on 1 − |a|/|b|: (|a|/|b|) √((0.02/0.05)² + (0.02/0.73)²), in percent.
    error = 100 * 0.05 / 0.73 * math.hypot(0.02 / 0.05, 0.02 / 0.73)
    assert row["fairness_low"] == pytest.approx(row["fairness_change"] - 1.959964 * error)
    assert row["fairness_high"] == pytest.approx(row["fairness_change"] + 1.959964 * error)
    assert row["before_may_be_zero"] is False


def test_a_change_of_items_is_paired_and_a_ratio_has_the_error_of_its_logarithm() -> None:
    """The gap halves in every one of 30 sentences, up to a deviation of their own."""
    rng = np.random.default_rng(0)
    sentences, own = rng.normal(0.4, 0.3, 30), rng.normal(0, 0.02, 30)
    parts = ["jsd_p female | female", "jsd_p male | male"]
    number = range(60)
    axes = pl.DataFrame({
        "item": [str(i) for i in number], "part": [parts[i // 30] for i in number],
        "cluster": [str(i % 30) for i in number],
    })  # fmt: skip
    keys = pl.DataFrame({"model": "m", "run": "main", "step": [1000, 2000]})
    male = np.zeros(30)
    values = np.array([[*(sentences / 2 + own), *male], [*sentences, *male]])
    gap = Quantity.of_items(array_items(keys, axes, values), GAP)
    able = side([0.5, 0.5], steps=[1000, 2000], stderr=math.nan, low=0.0, high=1.0)
    performance = frame_quantity(able, PERFORMANCE, "acc")
    row = pair_of(
        trade_off(performance, gap, gap_name="gap", max_accuracy_loss=2, pair=(2000, 1000))
    )
    ratio = values[0].sum() / values[1].sum()
    assert row["fairness_change"] == pytest.approx(100 * (1 - ratio))
    influence = (values[0] - ratio * values[1])[:30]
    error = influence.std(ddof=1) / math.sqrt(30) / sentences.mean()
    half = 100 * stats.t.ppf(0.975, 29) * error
    assert row["fairness_low"] == pytest.approx(row["fairness_change"] - half)
    assert row["fairness_high"] == pytest.approx(row["fairness_change"] + half)
    alone = sentences.std(ddof=1) / math.sqrt(30) / sentences.mean()
    assert error < 0.1 * alone, "what both steps share drops out"
    assert math.isnan(row["performance_low"])


def test_an_estimate_lies_in_its_interval_where_the_gap_is_nearly_gone() -> None:
    """From 0.73 to 0.0001, each ± 0.02."""
    gap = side([*DELTA[:4], 0.0001, 0.73], stderr=0.02)
    found = tradeoff_metric(side(ACC), gap, pair=(6000, 5000))
    row = pair_of(found)
    assert row["fairness_change"] == pytest.approx(99.986, abs=0.001)
    assert row["fairness_high"] == 100
    assert row["fairness_low"] == pytest.approx(100 * (1 - 1.96 * 0.02 / 0.73), abs=0.2)
    point = found.tradeoff.filter(step=5000).row(0, named=True)
    assert point["gap_low"] == 0
    assert point["gap_high"] == pytest.approx(1.96 * 0.02, abs=0.001)
    sure = found.tradeoff.filter(step=3000).row(0, named=True)  # Δ −0.2
    assert sure["gap_low"] == pytest.approx(0.2 - 1.96 * 0.02, abs=0.001)
    assert sure["gap_high"] == pytest.approx(0.2 + 1.96 * 0.02, abs=0.001)


def test_a_gap_whose_interval_contains_zero_is_reported_as_such() -> None:
    found = tradeoff_metric(side(ACC, stderr=0.01), side(DELTA, stderr=0.1), pair=(2000, 6000))
    assert pair_of(found)["before_may_be_zero"] is True
    assert "no percentage: the gap before may be zero" in found_in(found, "Change of the gap").text
    assert not any("Fairness increase" in each.text for each in FAMILY.findings(found))
    zero = tradeoff_metric(side(ACC), side([0.0, *DELTA[1:]]), pair=(1000, 2000))
    assert math.isnan(zero.pairs["fairness_change"][0])
    gap = found_in(zero, "no percentage: the gap before is zero")
    assert (gap.value, gap.baseline) == (pytest.approx(0.05), "gap 0 at step 1,000")
    assert found_in(zero, "Change of acc").value == pytest.approx(20)


def test_the_untrained_models_gap_has_no_percentage() -> None:
    steps = [0, 1000, 2000, 3000, 4000, 5000]
    found = tradeoff_metric(side(ACC, steps=steps), side(DELTA, steps=steps), pair=(0, 1000))
    assert "step 0 is the untrained model" in found_in(found, "no percentage").text
    assert not math.isnan(found.pairs["fairness_change"][0])  # the table keeps it


def test_several_models_and_runs_are_kept_apart() -> None:
    both = [
        pl.concat(
            [side(v).with_columns(model=pl.lit(m), run=pl.lit(r)) for m in "ab" for r in "xy"]
        )
        for v in (ACC, DELTA)
    ]
    found = tradeoff_metric(*both, pair=(5000, 4000))
    runs = [*zip("aabb", "xyxy", strict=True)]
    assert found.pairs.select("model", "run").rows() == [*runs, *runs]
    assert FAMILY.findings(found)[1].text.startswith("a x: Fairness increase, step 5,000")
    assert FAMILY.findings(found)[1].series == ("a", "x")


def test_models_are_one_if_only_the_owner_differs() -> None:
    ours = side(DELTA).with_columns(model=pl.lit("EleutherAI/pythia-70m"))
    theirs = side(ACC).with_columns(model=pl.lit("pythia-70m"))
    found = tradeoff_metric(theirs, ours).tradeoff
    assert found["model"].unique().to_list() == ["EleutherAI/pythia-70m"]
    early = side(ACC).with_columns(model=pl.lit("pythia-v0-70m"))
    with pytest.raises(UsageError, match=r"v0-70m.* --performance EleutherAI/pythia-70m=FILE"):
        tradeoff_metric(early, ours)


def test_releases_are_left_out_and_a_run_without_a_name_is_main() -> None:
    runs = pl.Series([None, "main", None, None, None, "main"], dtype=pl.String)
    release = side([0.0], steps=[None], run="main")  # type: ignore[list-item]
    gap = pl.concat([side(DELTA, run=runs), release])
    assert len(tradeoff_metric(side(ACC), gap).tradeoff) == 6


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        (side([0.1], steps=[80000]), "steps 1000 to 6000.*steps 80000 to 80000"),
        (side(DELTA, run="seed1"), "run main.*run seed1"),
        (
            pl.concat([side(DELTA), side([7.0], steps=[2000])]),
            "step 2000 has the value 0.05 and others .1 such",
        ),
        (side([float("nan"), *DELTA[1:]]), "step 1000 has the value nan"),
        (side(DELTA).rename({"value": "x"}), "value; it has step, x, model"),
        (side(DELTA).with_columns(step=pl.lit(None, pl.Int64)), "training step"),
        (side(DELTA, stderr=-0.01), "-0.01"),
        (side(DELTA, stderr=math.inf), "inf"),
        (side(DELTA).with_columns(model=pl.lit(None, pl.String)), "no model .6 such"),
    ],
)
def test_curves_that_do_not_fit_are_refused(gap: pl.DataFrame, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tradeoff_metric(side(ACC), gap)


@pytest.mark.parametrize(
    "options",
    [*({"max_accuracy_loss": loss} for loss in (-1, math.inf, math.nan)), {"pair": (80000, 1000)}],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        small(**options)


def test_a_performance_that_is_no_share_is_refused() -> None:
    with pytest.raises(UsageError, match="The performance .perplexity. is 90. .* a share"):
        tradeoff_metric(side([90.0, *ACC[1:]]), side(DELTA), metric="perplexity")


def test_charts_are_one_for_all_runs() -> None:
    runs = [
        pl.concat(side(values, run=run, stderr=0.01) for run in "xy") for values in (ACC, DELTA)
    ]
    charts = FAMILY.charts(tradeoff_metric(*runs))
    assert list(charts) == ["tradeoff", "measures"]
    for chart in charts.values():
        assert legend_names(chart.to_dict()) == {"m x", "m y"}
        assert "n = 12 checkpoints" in chart_caption(chart)
