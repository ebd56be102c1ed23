"""One score from the log-probabilities of pieces, by hand, and frames that do not fit."""

import math
from collections.abc import Sequence
from typing import get_args

import polars as pl
import pytest

from logitbank.analysis.families.stereoset import Rule
from logitbank.analysis.frames.candidates import RULES, read_candidates
from logitbank.errors import UsageError
from tests.support.row_scores import scores_of

pytestmark = pytest.mark.numerical

P = (0.5, 0.125)


def token_scores(
    probabilities: tuple[float, ...] = P, *, kind: str = "masked", **columns: object
) -> pl.DataFrame:
    usual = {
        "model": "m", "run": "main", "step": 0, "prompt_id": "c", "example": "e", "target": "nurse",
        "domain": "gender", "label": "stereotype", "language": "en", "condition": "plain",
    }  # fmt: skip
    return pl.DataFrame(
        {"piece": range(len(probabilities)), "logprob": [math.log(p) for p in probabilities]}
    ).with_columns(
        option=pl.lit("w"),
        logit=pl.col("logprob"),
        score_kind=pl.lit(kind),
        **{name: pl.lit(value) for name, value in (usual | columns).items()},
    )


def as_candidates(
    frame: pl.DataFrame,
    rules: Sequence[str] = ("reference",),
    *,
    prompts: pl.DataFrame | None = None,
) -> pl.DataFrame:
    (found,) = read_candidates(scores_of(frame, expected=prompts), rules)
    return found


@pytest.mark.parametrize(
    ("kind", "rule", "expected"),
    [
        ("masked", "reference", 0.3125),
        ("masked", "sum_logprob", math.log(0.0625)),
        ("masked", "mean_logprob", math.log(0.25)),
        ("sentence", "reference", 0.25),
        ("given", "reference", 0.25),
        ("given", "sum_logprob", math.log(0.0625)),
    ],
)
def test_rules_by_hand(kind: str, rule: str, expected: float) -> None:
    found = as_candidates(token_scores(kind=kind), [rule])
    assert found["value"].to_list() == pytest.approx([expected], abs=1e-15)
    assert found["score"].to_list() == [rule]


def test_a_next_sentence_score_is_its_probability_under_every_rule() -> None:
    found = as_candidates(token_scores((0.75,), kind="nsp"), RULES)
    assert found["value"].to_list() == pytest.approx([0.75] * 3)
    assert found["task"].unique().to_list() == ["intersentence"]


def test_tasks_follow_from_the_kind_of_score() -> None:
    frame = pl.concat(
        token_scores((0.5,), kind=kind, prompt_id=kind)
        for kind in ("masked", "sentence", "nsp", "given")
    )
    tasks = dict(as_candidates(frame).select("score_kind", "task").iter_rows())
    assert tasks == {
        "masked": "intrasentence",
        "sentence": "intrasentence",
        "nsp": "intersentence",
        "given": "intersentence_causal",
    }


def test_german_terms_are_the_english_ones() -> None:
    frame = token_scores(target="Krankenschwester", target_english="nurse")
    assert as_candidates(frame)["term"].to_list() == ["nurse"]
    assert as_candidates(token_scores(target="nurse"))["term"].to_list() == ["nurse"]


def test_a_word_of_which_a_piece_is_missing_has_no_score() -> None:
    frame = token_scores((0.5, 0.5, 0.5))
    for known, missing in ((4, 1), (3, 0)):
        found = as_candidates(frame, prompts=token_scores((0.5,) * known))
        assert found["value"].null_count() == missing


def test_impossible_scores_are_zero_and_no_error() -> None:
    frame = token_scores((1.0, 1.0)).with_columns(logprob=pl.Series([-math.inf, -math.inf]))
    sentence = frame.with_columns(score_kind=pl.lit("sentence"))
    for each in (frame, sentence):
        assert as_candidates(each)["value"].to_list() == [0.0]


def test_language_and_condition_may_be_absent() -> None:
    found = as_candidates(token_scores().drop("language", "condition"))
    assert found.select("language", "condition").rows() == [("", "plain")]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (token_scores().drop("example", "label"), "no column example, label"),
        (token_scores().drop("target"), "no column target"),
        (pl.concat([token_scores(), token_scores()]), r"a token that occurs twice: 1 \(c\)"),
        (token_scores(kind="guess"), r"with a score_kind other than masked, .*: 1 \(c\)"),
        (
            token_scores().with_columns(logprob=pl.lit(math.nan)),
            r"a log-probability that is NaN or above 0: 1 \(c\)",
        ),
        (token_scores().with_columns(logprob=pl.lit(0.5)), r"NaN or above 0: 1 \(c\)"),
        (token_scores(label="neutral"), r"with a label other than stereotype, .*: 1 \(c\)"),
    ],
)
def test_frames_that_do_not_fit(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_candidates(frame)


def test_the_options_of_the_command_are_the_rules() -> None:
    assert get_args(Rule) == RULES
    with pytest.raises(UsageError, match="'best'"):
        as_candidates(token_scores(), ["best"])
