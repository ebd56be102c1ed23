"""The sentences about a number over training, which every family takes from one place."""

import math
from dataclasses import replace

import polars as pl
import pytest

from logitbank.analysis.finding import Finding
from logitbank.analysis.results.series import Curve, size, totals, with_extreme


def rows(*values: float, missing: int = 0, step: int | None = 8) -> pl.DataFrame:
    """A number of a model at three checkpoints; the last one may be a release."""
    return pl.DataFrame(
        {
            "model": "toy",
            "run": "seed1",
            "step": [0, 4, step],
            "score": values,
            "low": [v - 0.25 for v in values],
            "high": [v + 0.25 for v in values],
            "pairs": 60,
            "missing": [0, 0, missing],
            "common": 58,
            "baseline_step": 0,
            "from_baseline": [0.0, 0.5, 0.125],
            "from_baseline_low": 0.1,
            "from_baseline_high": 0.2,
        }
    )


def curve(table: pl.DataFrame) -> Curve:
    return Curve(table, "score", "Score", size("pairs"), ".2f", "pairs", "0.5 by chance")


def test_the_last_value_has_its_interval_size_and_baseline() -> None:
    now = curve(rows(0.25, 0.5, 0.75, missing=2)).now()
    assert str(now) == (
        "Score at step 8: 0.75, 95% CI [0.50, 1.00], n = 60 pairs, 2 missing, baseline "
        "0.5 by chance."
    )
    assert (now.figure, now.series) == ("pairs", ("toy", "seed1"))


@pytest.mark.parametrize(
    ("missing", "n"), [(0, "60 pairs"), (1, "60 pairs, 1 missing; 58 items in both")]
)
def test_the_change_names_the_untrained_model_and_the_items_of_both(missing: int, n: str) -> None:
    (change,) = curve(rows(0.25, 0.5, 0.75, missing=missing)).change()
    assert str(change) == (
        f"Score, change to step 8: +0.12, 95% CI [+0.10, +0.20], n = {n}, baseline step 0, "
        "untrained model, paired."
    )


def test_a_release_is_the_last_value_and_in_no_change() -> None:
    release = curve(rows(0.25, 0.5, 0.75, step=None))
    assert release.now().text == "Score at release"
    (change,) = release.change()
    assert (change.text, change.value) == ("Score, change to step 4", 0.5)


def test_the_first_value_is_the_baseline_of_several_checkpoints_only() -> None:
    several = curve(rows(0.25, 0.5, 0.75))
    assert several.from_first().baseline == "0.25 at step 0"
    assert curve(several.rows.head(1)).from_first().baseline == ""


def test_sizes_name_clusters_where_they_are_fewer() -> None:
    text = size("prompts", "sentences")
    assert text({"prompts": 1584, "sentences": 1584}) == "1,584 prompts"
    assert text({"prompts": 1584, "sentences": 396}) == "1,584 prompts (396 sentences)"


def test_totals_are_of_what_occurs() -> None:
    table = pl.DataFrame({"tied": [0, 1200], "inexact": [0, 0]})
    found = totals(table, {"tied": "ranks are ties", "inexact": "ranks are bounds"})
    assert [each.text for each in found] == ["1,200 ranks are ties."]


def course(*points: tuple[float, float, float]) -> Curve:
    """A curve of values and the ends of their intervals."""
    table = pl.DataFrame([*points], schema=["score", "low", "high"], orient="row")
    place = {"model": pl.lit("toy"), "run": pl.lit("main"), "step": pl.int_range(pl.len())}
    return Curve(table.with_columns(**place), "score", "toy: Score", "9 pairs", ".2f", "pairs")


def test_an_inner_extreme_is_named_if_its_interval_is_beyond_both_ends() -> None:
    start, end = (0.2, 0.1, 0.3), (0.5, 0.4, 0.6)
    assert course(start, (0.7, 0.61, 0.8), end).now().extreme == "highest 0.70 at step 1"
    assert course(start, (0.7, 0.59, 0.8), end).now().extreme == ""
    assert course(start, (0.7, math.nan, math.nan), end).now().extreme == ""
    near = course((0.08, 0.079, 0.081), (-0.01, -0.011, -0.009), (0.74, 0.739, 0.741))
    assert near.now().extreme == ""  # an eighth of the range below the start
    both = course(start, (0.05, 0.0, 0.09), (0.7, 0.61, 0.8), end).from_first()
    assert both.extreme == "lowest 0.05 at step 1 and highest 0.70 at step 2"


def test_the_headline_has_the_extreme_of_its_number() -> None:
    peak = course((0.2, 0.1, 0.3), (0.7, 0.61, 0.8), (0.5, 0.4, 0.6)).now()
    headline = Finding(text="It is 0.5.", figure="pairs", series=("toy", "main"))
    named = with_extreme(headline, [peak])
    assert str(named) == "It is 0.5, Score: highest 0.70 at step 1."
    for other in (replace(headline, figure="x"), replace(headline, text="It was 0.7 at step 1.")):
        assert with_extreme(other, [peak]) == other


def test_the_interval_of_a_few_large_values_is_doubted_beside_it() -> None:
    """Only if there is an interval."""
    peak = course((0.2, 0.1, 0.3), (0.5, 0.4, 0.6))
    for skewed, interval, doubted in ((True, True, 1), (False, True, 0), (True, False, 0)):
        rows = peak.rows.with_columns(skewed=pl.lit(skewed))
        rows = rows if interval else rows.with_columns(low=math.nan, high=math.nan)
        assert str(replace(peak, rows=rows).now()).count("probably too short") == doubted


def test_a_value_at_the_first_checkpoint_has_its_own_sample_size() -> None:
    table = pl.DataFrame(
        {"model": "m", "run": "main", "step": [0, 8], "value": [2.0, 1.5], "items": [17, 48]}
    )
    curve = Curve(table, "value", "Entropy", size("items", items="prompt"), ".2f")
    assert curve.from_first().baseline == "2.00 at step 0 of 17 prompts"
    equal = replace(curve, rows=table.with_columns(items=48))
    assert equal.from_first().baseline == "2.00 at step 0"
