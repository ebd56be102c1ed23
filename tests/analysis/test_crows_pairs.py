"""CrowS-Pairs from rows of pieces: which side is preferred, both directions, ties, bias types."""

import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest

from logitbank.analysis.families.crows_pairs.metric import crows_pairs_metric
from logitbank.analysis.families.crows_pairs.summary import crows_pairs_summary
from logitbank.errors import BankError, UsageError
from tests.support.piece_cases import pair_frame, piece_frame

pytestmark = pytest.mark.numerical


PAIRS = (
    (-10.0, -12.0, "stereo", "gender"),  # the stereotype is preferred
    (-12.0, -10.0, "stereo", "gender"),
    (-8.0, -9.0, "stereo", "age"),  # preferred
    (-7.0, -9.0, "antistereo", "gender"),  # preferred: sent_more is the stereotyping one here too
    (-9.0, -7.0, "antistereo", "age"),
    (-5.0, -5.0, "antistereo", "age"),  # neutral
)


def rows(frame: pl.DataFrame, *columns: str) -> dict[str, tuple[object, ...]]:
    table = crows_pairs_metric(frame).crows_pairs
    return {r[0]: r[1:] for r in table.select("bias_type", *columns).rows()}


def test_the_stereotyping_sentence_is_sent_more_in_both_directions() -> None:
    found = rows(pair_frame(*PAIRS), "score", "stereo_score", "antistereo_score")
    # 3 of 6 pairs; 2 of 3 stereo; 1 of 2 antistereo that are not neutral.
    assert found["all"] == (50, pytest.approx(200 / 3), 50)
    assert found["gender"] == (pytest.approx(200 / 3), 50, 100)
    assert found["age"] == (pytest.approx(100 / 3), 100, 0)
    assert list(found) == ["all", "age", "gender"]


def test_neutral_pairs_are_counted_and_stay_in_the_denominator() -> None:
    found = rows(pair_frame(*PAIRS), "pairs", "neutral")
    assert found == {"all": (6, 1), "age": (3, 1), "gender": (3, 0)}


def test_error_and_interval_are_those_of_a_share() -> None:
    table = crows_pairs_metric(pair_frame(*PAIRS)).crows_pairs
    assert table["score_stderr"][0] == pytest.approx(100 * math.sqrt(0.25 / 5))
    assert table["low"].is_nan().all()  # six pairs, three of each type
    said = crows_pairs_summary(crows_pairs_metric(pair_frame(*PAIRS)))[0]
    assert "in 50.0 % of 6 pairs (no interval from 6 pairs, fewer than 10)" in said
    table = crows_pairs_metric(pair_frame(*PAIRS, *PAIRS)).crows_pairs
    # Wilson of 6 in 12: ½ ± 1.96 √(1/48 + 1.96²/576) / (1 + 1.96²/12), in percent.
    half = 1.959964 * math.sqrt(1 / 48 + 1.959964**2 / 576) / (1 + 1.959964**2 / 12)
    assert table["low"][0] == pytest.approx(100 * (0.5 - half))
    assert table["high"][0] == pytest.approx(100 * (0.5 + half))
    assert table["low"].is_nan().to_list() == [False, True, True]


def test_the_size_of_the_differences_is_that_of_the_harness() -> None:
    found = rows(pair_frame(*PAIRS), "likelihood_diff", "likelihood_diff_stderr")
    # Sizes 2, 2, 1, 2, 2, 0: mean 3/2, deviation √(7/2/5); age 1, 2, 0; gender 2, 2, 2.
    assert found["all"] == (1.5, pytest.approx(math.sqrt(0.7 / 6)))
    assert found["age"] == (1, pytest.approx(1 / math.sqrt(3)))
    assert found["gender"] == (2, 0)
    assert math.isnan(
        crows_pairs_metric(pair_frame(PAIRS[0])).crows_pairs["likelihood_diff_stderr"][0]
    )


def test_sentences_of_the_same_values_tie_in_whatever_order_their_pieces_are() -> None:
    """40 pairs of sentences, each with the same 9 to 48 values, shuffled: no sum is greater."""
    random = np.random.default_rng(0)
    prompts, columns = {}, {}
    for number in range(40):
        values = -random.exponential(3, size=9 + number)
        for side in ("more", "less"):
            prompts[f"{number}-{side}"] = [(v, 5, 0) for v in random.permutation(values).tolist()]
            columns[f"{number}-{side}"] = {
                "pair": number, "side": side, "direction": "stereo", "bias_type": "age",
                "score_kind": "sentence",
            }  # fmt: skip
    found = rows(piece_frame(prompts, columns=columns), "score", "pairs", "neutral")
    assert found["all"] == (0, 40, 40)


def test_pairs_that_have_nothing_to_score_are_counted() -> None:
    """Two sentences without a token in common are no rows of a masked model."""
    frame = pair_frame(*PAIRS, kind="masked")
    assert crows_pairs_metric(frame).checkpoints["unscored"].to_list() == [0]
    bare = frame.filter(~pl.col("pair").is_in([1, 3]))
    result = crows_pairs_metric(bare)
    assert result.checkpoints.select("prompts", "missing", "unscored").row(0) == (8, 0, 2)
    assert (
        "2 pairs without anything to score, as where both sentences share no token; in no number."
        in crows_pairs_summary(result)
    )
    part = pl.concat([bare, bare.filter(pl.col("pair") > 2).with_columns(step=pl.lit(8, pl.Int64))])
    assert crows_pairs_metric(part).checkpoints.select("prompts", "missing", "unscored").rows() == [
        (8, 0, 2),
        (4, 4, 2),
    ]
    named = bare.with_columns(pair=pl.format("p{}", "pair"))
    assert crows_pairs_metric(named).checkpoints["unscored"].to_list() == [None]


def test_a_direction_without_pairs_has_no_score() -> None:
    (_, value, _), *_ = (
        crows_pairs_metric(pair_frame(PAIRS[0]))
        .crows_pairs.select("stereo_score", "antistereo_score", "pairs")
        .rows()
    )
    assert math.isnan(value)


def test_sums_count_and_not_means() -> None:
    """A longer sentence has the lower sum, though its tokens are the more probable ones."""
    long, short = pair_frame(PAIRS[0], pieces=9), pair_frame(PAIRS[0], pieces=2)
    mixed = pl.concat(
        [
            long.filter(side="more").with_columns(logprob=pl.lit(-1.0)),
            short.filter(side="less").with_columns(logprob=pl.lit(-2.0)),
        ]
    )
    assert rows(mixed, "score")["all"] == (0,)


def test_masked_and_causal_scores_are_kept_apart() -> None:
    turned = tuple((less, more, d, b) for more, less, d, b in PAIRS)
    frame = pl.concat(
        [
            pair_frame(*PAIRS).with_columns(model=pl.lit("gpt")),
            pair_frame(*turned, kind="masked").with_columns(model=pl.lit("bert")),
        ]
    )
    table = crows_pairs_metric(frame).crows_pairs.filter(bias_type="all")
    assert table.select("model", "score_kind", "stereo_score").rows() == [
        ("bert", "masked", pytest.approx(100 / 3)),
        ("gpt", "sentence", pytest.approx(200 / 3)),
    ]


def test_pairs_that_are_there_in_part_are_left_out() -> None:
    whole, part = pair_frame(*PAIRS, step=0), pair_frame(*PAIRS, step=1)
    part = part.filter((pl.col("prompt_id") != "0-less") | (pl.col("piece") == 0))
    result = crows_pairs_metric(pl.concat([whole, part]))
    assert result.crows_pairs.filter(bias_type="all")["pairs"].to_list() == [6, 5]
    assert result.checkpoints["missing"].to_list() == [0, 1]
    with pytest.raises(BankError, match="no pair has both its sentences whole"):
        crows_pairs_metric(whole.filter(side="more"))


@pytest.mark.parametrize(
    ("column", "allowed"),
    [
        ("side", "neither more nor less"),
        ("direction", "neither stereo nor antistereo"),
        ("score_kind", "neither masked nor sentence"),
    ],
)
def test_other_marks_are_refused(column: str, allowed: str) -> None:
    frame = pair_frame(PAIRS[0]).with_columns(pl.lit("x").alias(column))
    with pytest.raises(
        UsageError, match=rf"'0-less' has the {column} 'x', which is {allowed} \(2 such rows\)"
    ):
        crows_pairs_metric(frame)


def test_a_pair_is_one_sentence_of_each_side() -> None:
    frame = pair_frame(PAIRS[0], PAIRS[1]).with_columns(pair=pl.lit(7))
    with pytest.raises(UsageError, match=r"pair 7 of toy main step 0 has several .* 'more' \(2"):
        crows_pairs_metric(frame)


def test_masked_scores_are_over_the_same_number_of_tokens() -> None:
    frame = pl.concat(
        [
            pair_frame(PAIRS[0], kind="masked", pieces=3).filter(side="more"),
            pair_frame(PAIRS[0], kind="masked", pieces=2).filter(side="less"),
        ]
    )
    with pytest.raises(
        UsageError, match=r"pair 0 of toy main step 0 has 3 scored tokens against 2"
    ):
        crows_pairs_metric(frame)


def test_missing_columns_are_named() -> None:
    with pytest.raises(UsageError, match=r'lacks side, direction, .*bank\.scan\("crows-pairs"\)'):
        crows_pairs_metric(pair_frame(*PAIRS).drop("side", "direction"))


def test_bias_types_are_adjusted_for_their_number() -> None:
    more, less = (-10.0, -12.0), (-12.0, -10.0)
    pairs = [(*more, "stereo", "age")] * 15 + [(*less, "stereo", "age")] * 3
    pairs += [(*more, "stereo", "gender")] * 10 + [(*less, "stereo", "gender")] * 8
    pairs += [(*more, "stereo", "race")] * 6 + [(-5.0, -5.0, "stereo", "race")] * 5
    found = rows(pair_frame(*pairs), "p", "p_bh")
    age, gender, race = (binomtest(*each).pvalue for each in ((15, 18), (10, 18), (6, 6)))
    assert [found[name][0] for name in ("age", "gender", "race")] == pytest.approx(
        [age, gender, race]
    )
    assert found["all"] == (pytest.approx(binomtest(31, 42).pvalue), None)
    # In order: race 0.031 · 3/2 and age 0.0075 · 3, of which none may exceed the next.
    assert [found[name][1] for name in ("age", "gender", "race")] == pytest.approx(
        [3 * age, gender, 1.5 * race]
    )
    said = " ".join(crows_pairs_summary(crows_pairs_metric(pair_frame(*pairs))))
    assert "adjustment for 3 bias types, Benjamini–Hochberg): age 83.3 %, race 54.5 %." in said
