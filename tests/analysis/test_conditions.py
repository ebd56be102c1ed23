"""Options less what they are worth after a condition: pointwise mutual information."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA

SHARES = {  # of tokens 2 to 5, after each context
    "q": [0.5, 0.0, 0.3, 0.2],
    "q+2": [0.1, 0.25, 0.4, 0.25],
    "c": [0.8, 0.0, 0.1, 0.1],
    "c+2": [0.25, 0.5, 0.125, 0.125],
    "lone": [0.6, 0.1, 0.1, 0.2],
}
"""Option a is tokens 2 and 3, option b is token 4: after `q` 0.125 and 0.3, after `c` 0.4 and
0.1."""


def filled(folder: Path, prompts: Sequence[Mapping[str, object]]) -> Bank:
    """A bank of these prompts with the options a, which is right, and b."""
    contexts = list(SHARES)
    queries = QuerySet("0" * 64, tuple(Query((9, i), 1) for i in range(len(contexts))))
    bank = Bank.create(folder / "b.zarr")
    bank.add_query_set(queries)
    rows = []
    for prompt in prompts:
        at = contexts.index(str(prompt.get("at", prompt["prompt_id"])))
        later = min(at + 1, len(contexts) - 1)
        for option, piece, token, row in (("a", 0, 2, at), ("a", 1, 3, later), ("b", 0, 4, at)):
            rows.append(
                {
                    "order_seed": None, "text": "t", "answer": "a", "option": option,
                    "piece": piece, "continuation": f"{option}{piece}", "token": token,
                    "is_answer": option == "a", "row": row, "query_set": queries.name,
                    "condition": None,
                }
                | {k: v for k, v in prompt.items() if k != "at"}
            )  # fmt: skip
    schema = dict(PROMPTS_SCHEMA) | {"condition": pl.String}
    bank.add_prompts("mine", pl.DataFrame(rows, schema=schema))
    logits = np.log(np.maximum([[0.0, 0.0, *row] for row in SHARES.values()], 1e-30))
    bank.deposit(
        logits.astype(np.float32), checkpoint=CheckpointId("m", step=8),
        query_set=queries.name, dtype="float32",
    )  # fmt: skip
    return bank


PAIR = ({"prompt_id": "q", "condition": "c"}, {"prompt_id": "c"})


def test_the_condition_s_sum_is_taken_away(tmp_path: Path) -> None:
    bank = filled(tmp_path, PAIR)
    sums = logitbank.options(bank).result
    assert sums.shares["probability"].to_list() == pytest.approx([0.125, 0.3])
    assert sums.shares["prompts"].to_list() == [1, 1], "a condition is no question"
    assert sums.answers["accuracy"].to_list() == [0.0]
    study = logitbank.options(bank, score="pmi")
    a, b = 0.125 / 0.4, 0.3 / 0.1
    assert study.result.shares["probability"].to_list() == pytest.approx([a, b])
    assert study.result.shares["option_probability"].to_list() == pytest.approx(
        [a / (a + b), b / (a + b)]
    )
    assert study.result.shares["missing"].to_list() == [0, 0]
    assert not any("without a condition" in line for line in study.summary)


def test_prompts_without_a_condition_are_missing_and_said(tmp_path: Path) -> None:
    bank = filled(tmp_path, [*PAIR, {"prompt_id": "lone"}])
    study = logitbank.options(bank, score="pmi")
    assert study.result.shares["missing"].to_list() == [1, 1]
    assert study.result.unconditional == 1
    assert any("1 prompt has no condition" in str(each) for each in study.findings)
    assert logitbank.options(bank).result.shares["prompts"].to_list() == [2, 2]


def test_each_order_has_its_condition_or_shares_one(tmp_path: Path) -> None:
    orders = [{"prompt_id": "q", "condition": "c", "order_seed": seed} for seed in (0, 1)]
    shared = filled(tmp_path / "shared", [*orders, {"prompt_id": "c"}])
    own = [
        {"prompt_id": "c", "order_seed": 0},
        {"prompt_id": "c", "order_seed": 1, "at": "q"},  # as after the question: it says nothing
    ]
    apart = filled(tmp_path / "apart", [*orders, *own])
    a, b = 0.125 / 0.4, 0.3 / 0.1
    found = logitbank.options(shared, score="pmi").result.shares["probability"]
    assert found.to_list() == pytest.approx([a, b])
    found = logitbank.options(apart, score="pmi").result.shares["probability"]
    assert found.to_list() == pytest.approx([(a + 1) / 2, (b + 1) / 2])


def test_without_any_condition_there_is_nothing_to_take_away(tmp_path: Path) -> None:
    bank = filled(tmp_path, [{"prompt_id": "lone"}])
    with pytest.raises(UsageError, match="No prompt has a condition, which the score pmi needs"):
        logitbank.options(bank, score="pmi")
