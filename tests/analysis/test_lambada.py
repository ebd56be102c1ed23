"""LAMBADA from rows of pieces: hits, ties, perplexity per example, missing and odd scores."""

import math

import polars as pl
import pytest

from logitbank.analysis.families.lambada.findings import findings
from logitbank.analysis.families.lambada.metric import lambada_examples, lambada_metric
from logitbank.errors import BankError, UsageError
from tests.support.piece_cases import piece_frame

pytestmark = pytest.mark.numerical

WORDS = {
    "a": [(-1.0, 1, 0), (-2.0, 1, 0)],  # right
    "b": [(-1.0, 1, 0), (-5.0, 3, 0)],  # the second token is not the largest
    "c": [(-0.5, 1, 1)],  # largest, with another
    "d": [(-0.5, 1, 0)],  # right
}


def only(table: pl.DataFrame) -> dict[str, object]:
    assert len(table) == 1
    return table.row(0, named=True)


def test_a_word_is_right_where_every_token_is_the_only_maximum() -> None:
    rows = lambada_examples(piece_frame(WORDS)).rows
    assert rows.select("prompt_id", "pieces", "logprob", "correct", "tied").rows() == [
        ("a", 2, -3.0, True, False),
        ("b", 2, -6.0, False, False),
        ("c", 1, -0.5, False, True),
        ("d", 1, -0.5, True, False),
    ]


def test_fewer_than_ten_words_have_no_interval() -> None:
    for words, known in ((9, False), (10, True)):
        frame = piece_frame({f"w{at}": [(-1.0 - at, 1 + at % 2, 0)] for at in range(words)})
        result = lambada_metric(frame)
        row = only(result.lambada)
        for bound in ("low", "high", "perplexity_low", "perplexity_high"):
            assert math.isnan(row[bound]) != known, bound  # type: ignore[arg-type]
        assert bool(findings(result)[1].interval) == known


def test_accuracy_error_and_perplexity_of_four_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.shares.FEWEST_CLUSTERS", 4)
    row = only(lambada_metric(piece_frame(WORDS)).lambada)
    assert row["acc"] == 0.5
    assert row["acc_stderr"] == pytest.approx(math.sqrt(0.25 / 3))
    assert row["perplexity"] == pytest.approx(math.exp(10 / 4)), "10 nats over 4 examples"
    # Deviations of −3, −6, −½, −½ from −2.5: squares ¼ + 12¼ + 4 + 4 = 20.5.
    error = math.sqrt(20.5 / 3) / 2
    assert row["perplexity_stderr"] == pytest.approx(math.exp(2.5) * error)
    assert row["perplexity_low"] == pytest.approx(math.exp(2.5 - 1.959964 * error))
    assert (row["examples"], row["tied"], row["inexact"]) == (4, 1, 0)


def test_perplexity_is_per_example_and_not_per_token() -> None:
    frame = piece_frame({"long": [(-1.0, 1, 0)] * 9, "short": [(-3.0, 2, 0)]})
    row = only(lambada_metric(frame).lambada)
    assert row["perplexity"] == pytest.approx(math.exp(12 / 2))
    assert row["perplexity"] != pytest.approx(math.exp(12 / 10))


def test_checkpoints_are_sorted_and_a_release_comes_last() -> None:
    frame = pl.concat([piece_frame(WORDS, step=step) for step in (None, 10, 2)])
    assert lambada_metric(frame).lambada["step"].to_list() == [2, 10, None]


def test_prompts_of_another_kind_are_refused() -> None:
    kinds = {name: {"score_kind": "target"} for name in WORDS}
    frame = piece_frame(WORDS, columns=kinds)
    assert lambada_metric(frame).lambada["acc"].to_list() == [0.5]
    other = piece_frame(WORDS, columns=kinds | {"c": {"score_kind": "sentence"}})
    with pytest.raises(
        UsageError, match=r"prompt 'c' is scored as 'sentence', no word .*\(1 such rows\)"
    ):
        lambada_metric(other)


def test_no_checkpoint_is_called_best_that_only_equals_the_last() -> None:
    frame = pl.concat([piece_frame(WORDS, step=step) for step in (2, 10)])
    found = findings(lambada_metric(frame))
    assert (found[1].value, found[1].n) == (0.5, "4 examples")
    assert not any("Highest" in each.text for each in found)


def test_an_accuracy_of_zero_has_an_interval_with_a_width() -> None:
    row = only(lambada_metric(piece_frame({str(i): [(-9.0, 50, 0)] for i in range(10)})).lambada)
    assert (row["acc"], row["acc_stderr"], row["low"]) == (0, 0, 0)
    # Wilson at p = 0: z² / (n + z²)
    assert row["high"] == pytest.approx(3.841459 / 13.841459)


def test_one_example_has_no_standard_error() -> None:
    row = only(lambada_metric(piece_frame({"d": WORDS["d"]})).lambada)
    assert math.isnan(float(str(row["acc_stderr"])))
    assert math.isnan(float(str(row["perplexity_stderr"])))


def test_words_that_a_checkpoint_has_in_part_are_left_out_and_counted() -> None:
    part = piece_frame(WORDS, step=8).filter(
        (pl.col("prompt_id") != "d") & ~((pl.col("prompt_id") == "a") & (pl.col("piece") == 1))
    )
    result = lambada_metric(pl.concat([piece_frame(WORDS), part]))
    assert result.checkpoints.rows() == [("toy", "main", 0, 4, 0), ("toy", "main", 8, 2, 2)]
    assert result.lambada["acc"].to_list() == [0.5, 0]
    # Alone, only the plan says that "a" has two tokens and that there is a "d".
    sizes = {"model": "toy", "prompt_id": [*WORDS], "pieces": [2, 2, 1, 1]}
    alone = lambada_metric(part, expected=pl.DataFrame(sizes))
    assert alone.checkpoints.rows() == [("toy", "main", 8, 2, 2)]


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), None])
def test_a_score_that_is_not_finite_is_named(value: float | None) -> None:
    frame = piece_frame(WORDS, step=16).with_columns(
        logprob=pl.when(pl.col("prompt_id") == "b").then(value).otherwise("logprob")
    )
    with pytest.raises(
        BankError, match=r"prompt 'b' of toy main step 16 has a log-probability of .* \(1 such"
    ):
        lambada_metric(frame)


def test_a_piece_that_is_scored_twice_is_named() -> None:
    frame = pl.concat([piece_frame(WORDS), piece_frame({"c": WORDS["c"]})])
    with pytest.raises(UsageError, match=r"prompt 'c' of toy main step 0 .* twice \(1 such"):
        lambada_metric(frame)


def test_prompts_of_several_options_are_named_as_such() -> None:
    parts = [
        piece_frame(WORDS).with_columns(option=pl.lit(option)) for option in ("she", "he", "they")
    ]
    message = (
        r"prompt 'a' has 3 options \('he', 'she', 'they'\), and lambada needs prompts of one text"
        r" .* target; name a set such as lambada with --prompts"
    )
    with pytest.raises(UsageError, match=message):
        lambada_metric(pl.concat(parts))


def test_missing_columns_and_rows_are_named() -> None:
    with pytest.raises(UsageError, match=r'lacks rank, .*--prompts .*bank\.scan\("lambada"\)'):
        lambada_metric(piece_frame(WORDS).drop("rank"))
    with pytest.raises(BankError, match="lambada"):
        lambada_metric(piece_frame(WORDS).clear())
