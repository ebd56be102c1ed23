"""A file of prompts that grew: what two query sets of one checkpoint have is scored once."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.frames.expected import partial_notes
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.read import sql

FEW, MANY = (QuerySet("5e" * 32, tuple(Query((7, i), 1) for i in range(n))) for n in (3, 5))
VALUES = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
LOGPROBS = VALUES - np.log(np.exp(VALUES.astype(np.float64)).sum(axis=1, keepdims=True))
PIECES = (("yes", 0, 1), ("yes", 1, 2), ("no", 0, 3))
"""Option, piece and token: `yes` has two tokens, which are both scored after the same context."""


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """Step 0 was asked three prompts, step 2 five, and step 1 both; all have the same logits."""
    bank = Bank.create(tmp_path / "b")
    for queries in (FEW, MANY):
        bank.add_query_set(queries)
        rows = [
            (f"p{row}", None, piece, f"Text {row}", "yes", option, f" {option}{piece}", token,
             option == "yes", queries.name, row)
            for row in range(len(queries))
            for option, piece, token in PIECES
        ]  # fmt: skip
        bank.add_prompts("mine", pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row"))
    for step, asked in ((0, [FEW]), (1, [FEW, MANY]), (2, [MANY])):
        for queries in asked:
            bank.deposit(
                VALUES[: len(queries)],
                checkpoint=CheckpointId("m", step=step),
                query_set=queries.name,
                keep="options",
            )
    return bank


def test_a_scan_has_a_row_for_each_piece(bank: Bank) -> None:
    rows = bank.scan("mine").collect()
    key = ["step", "prompt_id", "option", "piece"]
    assert rows.select(key).is_duplicated().sum() == 0
    assert dict(rows.group_by("step").len().iter_rows()) == {0: 9, 1: 15, 2: 15}
    expected = [
        LOGPROBS[int(p[1:]), token] for p, token in rows.select("prompt_id", "token").rows()
    ]
    np.testing.assert_allclose(rows["logprob"].to_numpy(), expected, atol=1e-6)


def test_a_whole_option_is_the_sum_of_its_pieces(bank: Bank) -> None:
    rows = bank.scan("mine", whole_options=True).collect()
    assert dict(rows.group_by("step").len().iter_rows()) == {0: 6, 1: 10, 2: 10}
    for prompt, option, pieces, text, logprob in rows.select(
        "prompt_id", "option", "pieces", "continuation", "logprob"
    ).iter_rows():
        own = LOGPROBS[int(prompt[1:])]
        assert (pieces, text) == ((2, " yes0 yes1") if option == "yes" else (1, " no0"))
        assert logprob == pytest.approx(own[1] + own[2] if option == "yes" else own[3], abs=1e-6)


@pytest.mark.parametrize("at_once", [1, 10, sql.AT_ONCE])
def test_sql_counts_each_piece_once(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(sql, "AT_ONCE", at_once)
    query = "SELECT step, COUNT(*) AS n FROM scores GROUP BY step ORDER BY step"
    assert bank.sql(query).collect().rows() == [(0, 9), (1, 15), (2, 15)]


def test_analyses_count_each_prompt_once(bank: Bank) -> None:
    result = logitbank.options(bank).result
    for table in (result.answers, result.checkpoints):
        assert table.sort("step").select("step", "prompts").rows() == [(0, 3), (1, 5), (2, 5)]


def test_a_checkpoint_that_was_asked_all_in_one_of_them_is_whole(bank: Bank) -> None:
    (sentence,) = partial_notes([bank], ["mine"])
    assert sentence.endswith("are over the others, at 1 checkpoint: m step 0.")
