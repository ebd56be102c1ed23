"""The prompts of a page: scores of the bank, and one prompt of a sentence."""

import base64
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.report.prompts import prompt_data
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support.evaluation_banks import winobias_bank
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    logits,
    new_bank,
    prompt_table,
    spec,
)


def test_prompts_of_a_page_are_the_scores_of_the_bank(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b.zarr")
    for step in (0, 1, 2):
        asked = spec(step)
        bank.deposit(logits(step), checkpoint=asked.checkpoint, query_set=asked.query_set)
    found = prompt_data([bank], "parity")
    assert (found["measure"], found["total"], len(found["prompts"])) == ("share", 10, 10)
    scan = bank.scan("parity").collect()
    (series,) = found["series"]
    assert series["steps"] == [0, 1, 2]
    stored = np.frombuffer(base64.b64decode(series["logprob"]["bdata"]), "<f4").reshape(3, 20)
    column = 0
    for prompt in found["prompts"]:
        for option in prompt["options"]:
            for at, step in enumerate(series["steps"]):
                (own,) = scan.filter(
                    prompt_id=prompt["id"], option=option["option"], step=step
                ).iter_rows(named=True)
                assert stored[at, column] == np.float32(own["logprob"])
            column += 1


def test_a_list_has_one_prompt_of_each_sentence_and_points_to_nothing_else(tmp_path: Path) -> None:
    bank = Bank.open(winobias_bank(tmp_path / "b.zarr", steps=6))
    sentences = dict(
        bank.prompts("winobias").select("prompt_id", "sentence_id").unique().collect().iter_rows()
    )
    found = prompt_data([bank], "winobias", values=6 * 3 * 25)
    assert (len(found["prompts"]), found["total"], found["grouped"]) == (25, 48, True)
    (series,) = found["series"]
    changed = [sentences[found["prompts"][at]["id"]] for at, *_ in series["changed"]]
    assert 10 <= len(changed) == len(set(changed))


def test_models_and_banks_that_were_asked_different_prompts_share_a_view(tmp_path: Path) -> None:
    other = QuerySet(TOKENIZER, tuple(Query((9, i), 1) for i in range(3)))
    more = prompt_table(other).with_columns(prompt_id=pl.lit("q") + pl.col("row").cast(pl.String))
    one, two = new_bank(tmp_path / "one"), Bank.create(tmp_path / "two")
    two.add_query_set(other)
    two.add_prompts("parity", more)
    for step in (0, 1):
        checkpoint = CheckpointId("a", step=step)
        one.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name)
        two.deposit(logits(step, queries=3), checkpoint=checkpoint, query_set=other.name)
    found = prompt_data([one, two], "parity")
    assert [series["name"] for series in found["series"]] == ["a one", "a two"]
    names = [prompt["id"] for prompt in found["prompts"]]
    assert sorted(names) == [f"p{i}" for i in range(10)] + ["q0", "q1", "q2"]
    for series, own in zip(found["series"], "pq", strict=True):
        stored = np.frombuffer(base64.b64decode(series["logprob"]["bdata"]), "<f4").reshape(2, 26)
        asked = ~np.isnan(stored[0]).reshape(13, 2).any(axis=1)
        assert {name for name, is_asked in zip(names, asked, strict=True) if is_asked} == {
            name for name in names if name.startswith(own)
        }
        assert {names[at][0] for at, *_ in series["changed"]} == {own}
    changed = Bank.create(tmp_path / "three")
    changed.add_query_set(QUERY_SET)
    changed.add_prompts("parity", prompt_table().with_columns(text=pl.lit("another text")))
    with pytest.raises(UsageError, match="differs in column"):
        prompt_data([one, changed], "parity")
