"""LAMBADA from rows of pieces: hits, ties, perplexity per example, missing and odd scores."""

import math

import polars as pl
import pytest
from scipy import stats

from logitbank.analysis.families.lambada.findings import findings
from logitbank.analysis.families.lambada.metric import read_items
from logitbank.analysis.frames.prompt_sums import greedy_match
from logitbank.errors import BankError, UsageError
from tests.support.piece_cases import piece_frame
from tests.support.row_scores import measured, scores_of

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
    (rows,) = scores_of(piece_frame(WORDS)).map_prompts(
        lambda sums: sums.rows, family="lambada", more=greedy_match()
    )
    assert rows.select("prompt_id", "pieces", "logprob", "correct", "tied").rows() == [
        ("a", 2, -3.0, True, False),
        ("b", 2, -6.0, False, False),
        ("c", 1, -0.5, False, True),
        ("d", 1, -0.5, True, False),
    ]


def test_fewer_than_ten_words_have_no_interval() -> None:
    for words, known in ((9, False), (10, True)):
        frame = piece_frame({f"w{at}": [(-1.0 - at, 1 + at % 2, 0)] for at in range(words)})
        result = measured("lambada", frame)
        row = only(result.further["lambada"])
        for bound in ("acc_low", "acc_high", "perplexity_low", "perplexity_high"):
            assert math.isnan(row[bound]) != known, bound  # type: ignore[arg-type]
        assert bool(findings(result)[1].interval) == known


def test_accuracy_error_and_perplexity_of_four_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.summary.FEWEST_CLUSTERS", 4)
    result = measured("lambada", piece_frame(WORDS))
    acc, perplexity = result.measures.rows(named=True)
    assert acc["value"] == 0.5
    assert acc["stderr"] == pytest.approx(math.sqrt(0.25 / 3))
    assert perplexity["value"] == pytest.approx(math.exp(10 / 4)), "10 nats over 4 examples"
    # Deviations of −3, −6, −½, −½ from −2.5: squares ¼ + 12¼ + 4 + 4 = 20.5.
    error = math.sqrt(20.5 / 3) / 2
    assert perplexity["stderr"] == pytest.approx(math.exp(2.5) * error)
    assert perplexity["low"] == pytest.approx(math.exp(2.5 - stats.t.ppf(0.975, 3) * error))
    row = only(result.further["lambada"])
    assert [row[name] for name in ("acc", "perplexity", "perplexity_low", "items")] == [
        acc["value"], perplexity["value"], perplexity["low"], 4
    ]  # fmt: skip
    assert only(result.further["ties"]).items() >= {"tied": 1, "inexact": 0}.items()
    assert str(findings(result)[-1]).startswith("1 last words share the largest logit")


def test_an_accuracy_of_zero_has_an_interval_with_a_width() -> None:
    wrong = piece_frame({str(i): [(-9.0, 50, 0)] for i in range(10)})
    row = measured("lambada", wrong).measures.row(0, named=True)
    assert (row["value"], row["stderr"], row["low"]) == (0, 0, 0)
    # Wilson at p = 0: z² / (n + z²)
    assert row["high"] == pytest.approx(3.841459 / 13.841459)


def test_words_that_a_checkpoint_has_in_part_are_left_out_and_counted() -> None:
    part = piece_frame(WORDS, step=8).filter(
        (pl.col("prompt_id") != "d") & ~((pl.col("prompt_id") == "a") & (pl.col("piece") == 1))
    )
    table = measured("lambada", pl.concat([piece_frame(WORDS), part])).further["lambada"]
    assert table.select("step", "items", "missing").rows() == [(0, 4, 0), (8, 2, 2)]
    assert table["acc"].to_list() == [0.5, 0]
    # Alone, only the plan says that "a" has two tokens and that there is a "d".
    alone = measured("lambada", part, expected=piece_frame(WORDS)).further["lambada"]
    assert alone.select("step", "items", "missing").rows() == [(8, 2, 2)]


KINDS = {name: {"score_kind": "target"} for name in WORDS}
OTHER = piece_frame(WORDS, columns=KINDS | {"c": {"score_kind": "sentence"}})
TWICE = pl.concat([piece_frame(WORDS), piece_frame({"c": WORDS["c"]})])
OPTIONS = [piece_frame(WORDS).with_columns(option=pl.lit(each)) for each in ("she", "he", "they")]


def with_b(value: float | None) -> pl.DataFrame:
    b = pl.when(pl.col("prompt_id") == "b").then(value).otherwise("logprob")
    return piece_frame(WORDS, step=16).with_columns(logprob=b)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (OTHER, "'c' is scored as 'sentence'.*1 such"),
        (TWICE, "'c'.*1 such"),
        (pl.concat(OPTIONS), "'a'.*4 such"),
        (piece_frame(WORDS).clear(), "lambada"),
        (with_b(float("nan")), "'b'.*1 such"),
        (with_b(float("-inf")), "'b'.*1 such"),
        (with_b(None), "'b'.*1 such"),
    ],
)
def test_frames_that_do_not_fit_are_refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises((BankError, UsageError), match=message):
        read_items(scores_of(frame))
