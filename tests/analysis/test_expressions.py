import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon

from logitbank.analysis.frames.expressions import (
    HALF_LN2,
    clip_divergence,
    jsd_parts,
    scaled,
    three_way_correct,
    unique_maximum,
    vocabulary_rank,
)
from logitbank.errors import UsageError

pytestmark = pytest.mark.numerical

logit_rows = arrays(np.float64, (3,), elements=st.floats(-40, 40))


def scores(**columns: list[int]) -> pl.DataFrame:
    base = {"rank": [1], "ties": [0], "padding_above": [0], "padding_ties": [0]}
    return pl.DataFrame(base | columns)


def test_certain_and_right_is_zero():
    assert jsd_parts([-np.inf, 0.0, -np.inf], 1).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("p", "gold_part", "other_part"),
    [(0.25, 0.12046547, 0.08664340), (0.5, 0.04247476, 0.17328680), (0.9, 0.00131640, 0.31191623)],
)
def test_parts_at_a_probability(p, gold_part, other_part):
    logits = np.log([p, 1 - p, 1e-300])
    # ½[ln(2/(1+p)) + p ln(2p/(1+p))] and ½ p ln 2; at 0.25: ½[0.4700036 − 0.25 · 0.9162907]
    assert jsd_parts(logits, 0)[0] == pytest.approx(gold_part, abs=1e-8)
    assert jsd_parts(logits, 1)[0] == pytest.approx(other_part, abs=1e-8)


@given(logits=logit_rows, gold=st.integers(0, 2))
def test_parts_sum_to_scipys_divergence_and_stay_in_range(logits, gold):
    parts = jsd_parts(logits, gold)
    p = np.exp(logits - logits.max())
    assert parts.sum() == pytest.approx(jensenshannon(p, np.eye(3)[gold]) ** 2, abs=1e-12)
    assert parts.min() >= 0
    assert parts.max() <= HALF_LN2 + 1e-15


@given(logits=logit_rows, gold=st.integers(0, 2), shift=st.floats(-100, 100))
def test_adding_a_constant_to_the_logits_changes_nothing(logits, gold, shift):
    assert jsd_parts(logits + shift, gold) == pytest.approx(jsd_parts(logits, gold), abs=1e-12)


def test_a_missing_logit_makes_the_prompt_nan_and_no_other():
    parts = jsd_parts([[np.nan, 0.0, 0.0], [0.0, 0.0, 0.0]], [0, 0])
    assert np.isnan(parts).tolist() == [[True] * 3, [False] * 3]


def test_scaled_reaches_one():
    assert scaled([0.0, math.log(2) / 4, math.log(2) / 2]).tolist() == [0.0, 0.5, 1.0]


def test_rounding_below_zero_becomes_zero_and_more_is_an_error():
    assert clip_divergence(np.array([-9e-13, np.nan, 0.1]))[[0, 2]].tolist() == [0.0, 0.1]
    with pytest.raises(UsageError, match=r"-0\.1 is below zero"):
        clip_divergence(np.array([0.2, -0.1]))


@pytest.mark.parametrize(
    ("ties", "vocab_limit", "expected"),
    [
        ("competition", False, 5.0),  # four are greater
        ("midrank", False, 6.5),  # and half of three equal ones
        ("competition", True, 3.0),  # two of the four are padding
        ("midrank", True, 4.0),  # and one of the three
    ],
)
def test_rank_under_each_rule(ties, vocab_limit, expected):
    row = scores(rank=[5], ties=[3], padding_above=[2], padding_ties=[1])
    assert row.select(vocabulary_rank(ties=ties, vocab_limit=vocab_limit)).item() == expected


def test_unknown_tie_rule_is_refused():
    with pytest.raises(UsageError, match="'average'"):
        vocabulary_rank(ties="average")


def test_only_an_untied_first_is_the_unique_maximum():
    rows = scores(rank=[1, 1, 2], ties=[0, 1, 0], padding_above=[0, 0, 1], padding_ties=[0, 1, 0])
    assert rows.select(unique_maximum()).to_series().to_list() == [True, False, False]
    assert rows.select(unique_maximum(vocab_limit=True)).to_series().to_list() == [True] * 3


def test_three_way_needs_a_strict_maximum():
    assert three_way_correct([[3, 1, 2], [3, 3, 2], [1, 3, 2], [np.nan] * 3], 0).tolist() == [
        *(True, False, False, False)
    ]
