"""Shares beside the first checkpoint's: the same items at both, by plain loops."""

import math
from typing import Any

import polars as pl
import pytest

from logitbank.analysis.families.lambada.findings import findings
from logitbank.analysis.families.pairs.metric import family_of
from logitbank.analysis.families.stereotype.metric import stereotype_metric
from logitbank.analysis.results.measured import measure
from logitbank.analysis.results.series import Curve
from tests.support.piece_cases import pair_frame, piece_frame
from tests.support.row_scores import measured, scores_of
from tests.support.stereotype_cases import sa_frame

HIT, MISS = [(-1.0, 1, 0)], [(-2.0, 2, 0)]
RIGHT, WRONG = ((-1.0, -2.0), (-1.0, -2.0)), ((-2.0, -1.0), (-2.0, -1.0))


def words(hits: list[int], *, step: int | None, start: int = 0) -> pl.DataFrame:
    named = {f"w{start + at}": HIT if hit else MISS for at, hit in enumerate(hits)}
    return piece_frame(named, step=step)


def accuracy(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of LAMBADA's accuracy."""
    return measured("lambada", frame).measures.filter(measure="acc").to_dicts()


def bonett_price(before: list[int], after: list[int]) -> tuple[float, float]:
    """Of paired shares, one item added for each direction: its formula, item by item."""
    d = [b - a for a, b in zip(before, after, strict=True)] + [1, -1]
    centre = sum(d) / len(d)
    variance = sum((x - centre) ** 2 for x in d) / len(d) / len(d)
    half = 1.959964 * math.sqrt(variance)
    return centre - half, centre + half


BEFORE, AFTER = [0] * 8 + [1] * 4, [1] * 6 + [0] * 2 + [1] * 3 + [0]


def test_the_difference_from_the_first_step_is_over_the_same_words() -> None:
    frame = pl.concat([words(BEFORE, step=0), words(AFTER, step=8), words(AFTER, step=None)])
    rows = accuracy(frame)
    assert [row["baseline_step"] for row in rows] == [0, 0, 0]
    assert [row["common"] for row in rows] == [12, 12, 12]
    for row in rows[1:]:
        assert row["from_baseline"] == pytest.approx((9 - 4) / 12)
        bounds = row["from_baseline_low"], row["from_baseline_high"]
        assert bounds == pytest.approx(bonett_price(BEFORE, AFTER))
    own = [rows[0][f"from_baseline{end}"] for end in ("", "_low", "_high")]
    assert all(map(math.isnan, own))  # the baseline itself


def test_words_that_either_checkpoint_lacks_are_in_no_difference() -> None:
    frame = pl.concat([words([0, 0, 1], step=0), words([1, 1, 1], step=8, start=1)])
    row = accuracy(frame)[1]
    assert (row["common"], row["from_baseline"]) == (2, 0.5)  # w1: 0 → 1, w2: 1 → 1
    assert math.isnan(row["from_baseline_low"])  # two words
    apart = pl.concat([words([0], step=0), words([1], step=8, start=5)])
    row = accuracy(apart)[1]
    assert row["common"] == 0
    assert math.isnan(row["from_baseline"])


def test_crows_pairs_are_compared_by_type_in_points() -> None:
    pairs = [(-10.0, -12.0 + 4 * (at % 2), "stereo", ("age", "gender")[at % 2]) for at in range(20)]
    later = [(-10.0, -12.0, "stereo", kind) for *_, kind in pairs]
    frame = pl.concat([pair_frame(*pairs, step=0), pair_frame(*later, step=4)])
    scores = scores_of(frame)
    family = family_of(scores)
    result = measure(family, scores)
    table = result.measures.filter(measure="score")
    assert table.filter(step=0)["from_baseline_low"].is_nan().all()
    rows = table.filter(step=4).select("group", "from_baseline", "common").rows()
    # Pairs of gender preferred the other sentence at first, those of age did not.
    assert rows == [("all", 50.0, 20), ("age", 0.0, 10), ("gender", 100.0, 10)]
    low, high = bonett_price([1, 0] * 10, [1] * 20)
    assert family.findings is not None
    found = [f for f in family.findings(result) if f.value == pytest.approx(50)]
    assert any((f.low, f.high) == pytest.approx((100 * low, 100 * high)) for f in found)


def test_stereotype_accuracy_is_compared_sentence_by_sentence() -> None:
    first = {f"s{at}": RIGHT if at < 6 else WRONG for at in range(12)}
    last = {f"s{at}": RIGHT if at < 9 else WRONG for at in range(12)}
    found = stereotype_metric(
        scores_of(pl.concat([sa_frame(first, step=0), sa_frame(last, step=2)]))
    )
    assert math.isnan(found.measures["from_baseline"][0])
    row = found.measures.row(1, named=True)
    assert (row["baseline_step"], row["from_baseline"], row["common"]) == (0, 0.25, 12)
    low, high = bonett_price([1] * 6 + [0] * 6, [1] * 9 + [0] * 3)
    assert (row["from_baseline_low"], row["from_baseline_high"]) == pytest.approx((low, high))


@pytest.mark.parametrize("first", [0, 4])
def test_a_change_names_its_baseline(first: int) -> None:
    table = pl.concat([words(BEFORE, step=first), words(AFTER, step=8)])
    (change,) = (f for f in findings(measured("lambada", table)) if "change to" in f.text)
    assert change.value == pytest.approx(5 / 12)
    assert change.baseline.startswith(f"step {first}, ")
    assert ("untrained model" in change.baseline) == (first == 0)


def test_a_first_step_without_a_value_is_said_in_place_of_a_change() -> None:
    facts = {"model": "m", "run": "main", "baseline_step": 0, "common": 3, "value": 0.5}
    known = pl.DataFrame(
        [facts | {"step": step, "from_baseline": math.nan, "items": 3} for step in (4, 8)]
    )
    (finding,) = Curve(known, "value", "Bias score", "n = 3").change()
    assert finding.text == "Bias score: no change to step 8, as there is no value at step 0."
