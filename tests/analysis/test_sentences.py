"""The sentences about a number over training, which every family takes from one place."""

import polars as pl
import pytest

from logitbank.analysis.results.series import Curve, size, totals


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
    n = size("pairs", missing="sentence")
    return Curve(table, "score", "Score", n, ".2f", "pairs", "0.5 by chance")


def test_the_last_value_has_its_interval_size_and_baseline() -> None:
    now = curve(rows(0.25, 0.5, 0.75, missing=2)).now()
    assert str(now) == (
        "Score at step 8: 0.75, 95% CI [0.50, 1.00], n = 60 pairs, 2 sentences missing, baseline "
        "0.5 by chance."
    )
    assert (now.figure, now.series) == ("pairs", ("toy", "seed1"))


@pytest.mark.parametrize(
    ("missing", "n"), [(0, "60 pairs"), (1, "60 pairs, 1 sentence missing; 58 items in both")]
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


def test_the_highest_value_is_named_only_if_it_is_not_the_last() -> None:
    assert [*curve(rows(0.25, 0.5, 0.75)).highest()] == []
    assert [*curve(rows(0.75, 0.5, 0.75)).highest()] == []
    (top,) = curve(rows(0.25, float("nan"), 0.125)).highest()
    assert (top.text, top.value) == ("Score, highest at step 0", 0.25)


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
