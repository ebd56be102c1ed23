"""Stereotype accuracy and its relative: averaging over orders, ties, and what counts as missing."""

import math

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.families.stereotype.metric import stereotype_metric
from logitbank.errors import BankError, UsageError
from tests.support.fairness_cases import FEMALE, MALE
from tests.support.row_scores import of_rows
from tests.support.stereotype_cases import SENTENCES, sa_frame, winobias

pytestmark = pytest.mark.numerical
measured = of_rows(stereotype_metric)


def accuracies(*frames: pl.DataFrame) -> pl.DataFrame:
    """The accuracies of frames, and the counts beside them."""
    tables = measured(*frames).further
    own = (
        tables["stereotype_accuracy"]
        .drop("sd", "missing")
        .with_columns(pl.col("type").cast(pl.Int64))
    )
    key = ["model", "run", "step", "kind", "type"]
    return own.join(tables["counts"], on=key, nulls_equal=True, maintain_order="left")


def test_orders_are_averaged_before_pronouns_are_compared() -> None:
    (row,) = accuracies(sa_frame(SENTENCES)).rows(named=True)
    assert row["accuracy"] == (1 + 0 + 0.5 + 1) / 4
    assert row["stderr"] == pytest.approx(np.std([1, 0, 0.5, 1], ddof=1) / 2)
    assert (row["kind"], row["type"], row["items"], row["orders"]) == ("sa", 2, 4, 2)
    assert (row["tied"], row["missing"]) == (1, 0)
    assert math.isnan(row["low"])  # four sentences
    many = {f"{name}{at}": scores for at in range(3) for name, scores in SENTENCES.items()}
    (row,) = accuracies(sa_frame(many)).rows(named=True)
    assert 0 < row["low"] < 0.625 < row["high"] < 1


def test_types_and_checkpoints_are_kept_apart() -> None:
    frame = pl.concat(
        [
            sa_frame({"a": SENTENCES["a"]}, kind=1).with_columns(pl.col("prompt_id") + "-1"),
            sa_frame({"a": SENTENCES["b"]}, kind=2),
            sa_frame({"a": SENTENCES["c"]}, step=None),
        ]
    )
    table = accuracies(frame)
    assert table.select("step", "type", "accuracy", "missing").fill_nan(-1).rows() == [
        (0, 1, 1, 0), (0, 2, 0, 0), (None, 1, -1, 1), (None, 2, 0.5, 0),
    ]  # fmt: skip


def test_a_sentence_that_lacks_an_order_is_missing() -> None:
    part = sa_frame(SENTENCES, step=1).filter(pl.col("prompt_id") != "d-she")
    table = accuracies(pl.concat([sa_frame(SENTENCES), part]))
    assert table.select("items", "missing", "accuracy").rows() == [
        (4, 0, 0.625),
        (3, 1, 0.5),
    ]


def test_sa_gender_compares_the_two_genders_on_pro_sentences_only() -> None:
    logits = np.zeros((1, 2, 3, 3))
    logits[0, :, 0] = [[2, 1, 9], [1, 2, 0]]  # gold male: a hit in one of two orders
    logits[0, :, 1] = [[0, 1, 0], [1, 1, 0]]  # gold female: a hit and a tie
    logits[0, :, 2] = [[5, 0, 0], [5, 0, 0]]  # anti-stereotyped: not asked
    frame = winobias(logits, [MALE, FEMALE, MALE], ["pro", "pro", "anti"])
    (row,) = accuracies(frame).rows(named=True)
    assert row["accuracy"] == (0.5 + 0.75) / 2
    assert (row["kind"], row["items"], row["orders"], row["tied"]) == ("sa_gender", 2, 2, 1)
    # Order 0 has 1 and 1, order 1 has 0 and ½: means 1 and ¼.
    assert row["sd"] == pytest.approx(0.75 / math.sqrt(2))


@pytest.mark.parametrize("seed", range(8))
def test_equal_shares_tie_in_whatever_order_they_are_added(seed: int) -> None:
    """Halves of hits over three orders of each sentence: 20 in all at either checkpoint."""
    random = np.random.default_rng(seed)
    logits = np.zeros((2, 3, 6, 3))
    for at, halves in enumerate(([5, 1, 4, 6, 1, 3], [1, 6, 5, 1, 4, 3])):
        for prompt, count in enumerate(random.permutation(halves)):
            own = [min(2, max(0, count - 2 * order)) for order in range(3)]  # of each order
            logits[at, :, prompt, MALE] = own
            logits[at, :, prompt, FEMALE] = 1
    frame = winobias(logits, [MALE] * 6, ["pro"] * 6).sample(fraction=1, shuffle=True, seed=seed)
    assert accuracies(frame)["accuracy"].to_list() == [20 / 36, 20 / 36]


ONE_ORDER = (pl.col("prompt_id") != "b-he") | (pl.col("option") == "he")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (sa_frame(SENTENCES).drop("order"), "order_seed"),
        (sa_frame(SENTENCES).clear(), "no score for stereotype-accuracy"),
        (sa_frame(SENTENCES).filter(ONE_ORDER), "'b-he'.*toy main step 0.*1 such"),
        (
            sa_frame(SENTENCES).with_columns(logprob=float("nan")),
            "'a-he'.*nan at toy main step 0.*16 such",
        ),
    ],
)
def test_frames_that_do_not_fit_are_refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises((BankError, UsageError), match=message):
        measured(frame)
