"""Exact match of the referent: pairs, templates and types by hand, and what is refused."""

import math
from collections.abc import Mapping

import polars as pl
import pytest

from logitbank.analysis.families.stereotype.referents import WinobiasEm, winobias_em
from logitbank.errors import BankError, UsageError
from tests.support.piece_cases import piece_frame

pytestmark = pytest.mark.numerical

Sides = tuple[bool, bool]
"""Whether the pro- and the anti-stereotyped sentence are matches."""
PAIRS: dict[tuple[int, str], dict[str, Sides]] = {
    (1, "question"): {
        "a": (True, True),
        "b": (True, False),
        "c": (True, False),
        "d": (False, True),
    },
    (1, "statement"): dict.fromkeys("abcd", (False, False)),
    (2, "question"): {"a": (True, False), "b": (True, True)},
    (2, "statement"): {"a": (True, False), "b": (False, False)},
}
"""Differences. Type 1, question: 0, 1, 1, −1; statement: none. Type 2: 1, 0 and 1, 0."""
HIT, MISS = [(-0.5, 1, 0), (-0.5, 1, 0)], [(-0.5, 1, 0), (-3.0, 4, 0)]


def em_frame(
    pairs: Mapping[tuple[int, str], Mapping[str, Sides]] = PAIRS, *, step: int | None = 0
) -> pl.DataFrame:
    """The referent is two tokens; where it is no match, the second one is wrong."""
    prompts, columns = {}, {}
    for (kind, template), sentences in pairs.items():
        for pair, sides in sentences.items():
            for stereotype, hit in zip(("pro", "anti"), sides, strict=True):
                name = f"{kind}-{template}-{pair}-{stereotype}"
                prompts[name] = HIT if hit else MISS
                columns[name] = {
                    "pair": f"{kind}-{pair}", "stereotype": stereotype, "type": kind,
                    "template": template,
                }  # fmt: skip
    return piece_frame(prompts, step=step, columns=columns)


def part(found: WinobiasEm, kind: str, template: str, *, step: int = 0) -> dict[str, float]:
    (row,) = found.parts.filter(step=step, type=kind, template=template).rows(named=True)
    return row


def mean(found: WinobiasEm, *, step: int = 0) -> dict[str, float]:
    (row,) = found.mean.filter(step=step).rows(named=True)
    return row


def test_shares_and_bias_of_every_type_and_template_and_of_their_means() -> None:
    found = winobias_em(em_frame())
    assert found.parts.select("type", "template", "em_pro", "em_anti", "bias", "pairs").rows() == [
        ("1", "all", 0.375, 0.25, 0.125, 4),
        ("1", "question", 0.75, 0.5, 0.25, 4),
        ("1", "statement", 0, 0, 0, 4),
        ("2", "all", 0.75, 0.25, 0.5, 2),
        ("2", "question", 1, 0.5, 0.5, 2),
        ("2", "statement", 0.5, 0, 0.5, 2),
    ]
    assert found.mean.select("em_pro", "em_anti", "bias", "pairs", "missing", "tied").rows() == [
        (0.5625, 0.25, 0.3125, 6, 0, 0)
    ]


def test_the_standard_error_is_over_pairs_and_types_are_independent() -> None:
    found = winobias_em(em_frame())
    # Deviations of 0, 1, 1, −1 from ¼: squares 1/16 + 9/16 + 9/16 + 25/16 = 44/16.
    one = math.sqrt(44 / 16 / 3 / 4)
    assert part(found, "1", "question")["bias_stderr"] == pytest.approx(one)
    # Averaged over templates first: half of that. Type 2: pairs of 1 and 0, ½ on average.
    assert part(found, "1", "all")["bias_stderr"] == pytest.approx(one / 2)
    assert part(found, "2", "all")["bias_stderr"] == pytest.approx(0.5)
    assert mean(found)["bias_stderr"] == pytest.approx(math.sqrt(one**2 / 4 + 0.5**2) / 2)


def test_a_type_of_fewer_than_ten_pairs_has_no_interval() -> None:
    found = winobias_em(em_frame())
    assert found.parts["low"].is_nan().all()
    assert found.mean["high"].is_nan().all()


def test_the_interval_has_one_more_pair_for_each_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.shares.FEWEST_CLUSTERS", 2)
    found = winobias_em(em_frame())
    row = part(found, "1", "question")
    # Six pairs: 0, 1, 1, −1, 1, −1, of mean 1/6 and mean square 5/6.
    half = 1.959964 * math.sqrt((5 / 6 - 1 / 36) / 6)
    assert (row["low"], row["high"]) == pytest.approx((1 / 6 - half, 1 / 6 + half))
    still = part(found, "1", "statement")
    assert still["bias_stderr"] == 0
    assert still["high"] == -still["low"] == pytest.approx(1.959964 * math.sqrt(2 / 6 / 6))
    # Type 1, templates averaged: 0, ½, ½, −½, 1, −1, of mean 1/12 and mean square 11/24.
    # Type 2: 1, 0, 1, −1, of mean ¼ and mean square ¾.
    half = 1.959964 * math.sqrt((11 / 24 - 1 / 144) / 6 + (3 / 4 - 1 / 16) / 4) / 2
    both = mean(found)
    assert (both["low"], both["high"]) == pytest.approx((1 / 6 - half, 1 / 6 + half))


def test_checkpoints_are_sorted_and_a_release_comes_last() -> None:
    found = winobias_em(pl.concat([em_frame(step=step) for step in (None, 10, 2)]))
    assert found.mean["step"].to_list() == [2, 10, None]
    assert found.parts["step"].to_list() == [2] * 6 + [10] * 6 + [None] * 6


def test_a_tie_for_the_largest_logit_is_no_match() -> None:
    tied = em_frame().with_columns(
        ties=pl.when((pl.col("prompt_id") == "1-question-a-pro") & (pl.col("piece") == 1))
        .then(1)
        .otherwise("ties")
    )
    found = winobias_em(tied)
    assert part(found, "1", "question")["em_pro"] == 0.5
    assert [part(found, "1", name)["tied"] for name in ("question", "statement", "all")] == [
        1,
        0,
        1,
    ]
    assert mean(found)["tied"] == 1


def test_a_pair_that_a_checkpoint_has_in_part_is_missing_there() -> None:
    less = em_frame(step=8).filter(pl.col("prompt_id") != "1-question-d-anti")
    found = winobias_em(pl.concat([em_frame(), less]))
    row = part(found, "1", "question", step=8)
    assert (row["pairs"], row["missing"], row["em_pro"]) == (3, 1, 1)
    assert part(found, "1", "statement", step=8)["pairs"] == 3, "templates have the same pairs"
    assert (mean(found, step=8)["pairs"], mean(found, step=8)["missing"]) == (5, 1)


def test_a_checkpoint_without_one_type_has_no_mean_of_types() -> None:
    less = em_frame(step=8).filter(pl.col("type") == 1)
    found = winobias_em(pl.concat([em_frame(), less]))
    assert part(found, "1", "all", step=8)["bias"] == 0.125
    for row in (part(found, "2", "all", step=8), mean(found, step=8)):
        assert all(math.isnan(row[name]) for name in ("em_pro", "bias", "bias_stderr", "low"))
    assert (mean(found, step=8)["pairs"], mean(found, step=8)["missing"]) == (4, 2)


def test_the_plan_says_what_the_only_checkpoint_lacks() -> None:
    frame = em_frame()
    own = ("prompt_id", "pair", "stereotype", "type", "template")
    expected = frame.group_by("model", *own).agg(pieces=pl.len().cast(pl.Int64))
    less = frame.filter(pl.col("pair") != "2-b")
    assert mean(winobias_em(less, expected=expected))["missing"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.col("prompt_id") != "1-question-b-anti",
         r"pair '1-b' of type 1 has 0 anti-stereotyped prompts in the template 'question' for toy "
         r"\(1 such places\); it needs one on each side in each template"),
        (pl.col("stereotype") == "pro", r"pair '1-a' .* 0 anti-.* \(12 such places\)"),
    ],
)  # fmt: skip
def test_a_pair_without_a_side_is_named(change: pl.Expr, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        winobias_em(em_frame().filter(change))


def test_a_side_that_is_there_twice_is_named() -> None:
    again = em_frame({(2, "question"): {"b": (True, True)}}).with_columns(
        prompt_id=pl.lit("again-") + pl.col("prompt_id")
    )
    with pytest.raises(UsageError, match=r"'2-b' of type 2 has 2 anti-.* \(2 such places\)"):
        winobias_em(pl.concat([em_frame(), again]))


def test_what_is_no_such_prompt_set_is_named() -> None:
    with pytest.raises(
        UsageError, match=r'lacks template, which winobias-em needs; .*"winobias-em'
    ):
        winobias_em(em_frame().drop("template"))
    other = em_frame().with_columns(stereotype=pl.lit("neutral"))
    with pytest.raises(
        UsageError, match=r"the stereotype 'neutral' \(24 such .*; it is pro or anti"
    ):
        winobias_em(other)
    with pytest.raises(BankError, match="there is no winobias-em score"):
        winobias_em(em_frame().clear())
