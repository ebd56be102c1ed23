"""The most probable tokens after a prompt, from full rows or from what a bank lists."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.prompts.top_tokens import top_tokens
from logitbank.errors import DamagedError
from logitbank.store import Bank, CheckpointId
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    block_data,
    logits,
    new_bank,
    spec,
    token_table,
)


def bank_at(path: Path, keep: str) -> Bank:
    bank = new_bank(path)
    bank.add_tokens(TOKENIZER, token_table())
    values = np.tile(np.array([0, 3, 1, 2, -1, -2], np.float32), (10, 1))
    bank.deposit(values, checkpoint=CheckpointId("m", step=8), query_set=QUERY_SET.name, keep=keep)
    return bank


@pytest.mark.parametrize(("keep", "places"), [("full", 3), ("topk:3", 3), ("options", 1)])
def test_the_highest_entries_have_their_texts(tmp_path: Path, keep: str, places: int) -> None:
    frame = top_tokens(bank_at(tmp_path / "b", keep), "p4", k=3)
    expected = [(8, 0, 1, 1, " yes"), (8, 0, 2, 3, "a"), (8, 0, 3, 2, " maybe")][:places]
    assert frame.select("step", "piece", "place", "token", "token_text").rows() == expected
    total = np.log(np.exp([0, 3, 1, 2, -1, -2]).sum())
    np.testing.assert_allclose(frame["logprob"], np.array([3, 2, 1])[:places] - total, atol=1e-6)


def test_checkpoints_are_in_order_and_missing_blocks_are_excluded(tmp_path: Path) -> None:
    bank = bank_at(tmp_path / "b", "full")
    for step in (None, 1000):
        bank.deposit(logits(), checkpoint=CheckpointId("m", step=step), query_set=QUERY_SET.name)
    with bank.begin(spec(0)) as writer:
        writer.write(0, block_data(writer.layout, 0))
    frame = top_tokens(bank, "p9", k=2, models="m")
    assert frame["step"].to_list() == [8, 8, 1000, 1000, None, None]
    assert top_tokens(bank, "p9", k=2, steps=0).is_empty()
    assert top_tokens(bank, "p3", k=2, steps="0")["place"].to_list() == [1, 2]
    assert frame.filter(pl.col("step") == 1000)["token"].to_list() == (
        np.argsort(-logits()[9])[:2].tolist()
    )


def test_damaged_texts_are_refused(tmp_path: Path) -> None:
    bank = bank_at(tmp_path / "b", "full")
    (table,) = bank.path.glob("tokens/*.parquet")
    table.write_bytes(table.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedError, match="tokens/"):
        top_tokens(bank, "p4")
