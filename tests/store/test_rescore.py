"""Options that were named after an extraction, by several runs that end at the same time."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.engine.run import _finish
from logitbank.errors import BankError
from logitbank.store import Bank, CheckpointId, Deposit, verify
from logitbank.store.read.missing_scores import missing_options
from tests.support.command import Call
from tests.support.small_banks import (
    QUERIES,
    QUERY_SET,
    block_data,
    logits,
    new_bank,
    prompt_table,
    spec,
)

pytestmark = pytest.mark.numerical

CHECKPOINT = CheckpointId("org/model", step=0)
SUITE = cast(Any, SimpleNamespace(checkpoints=(SimpleNamespace(id=CHECKPOINT),)))


LATE = prompt_table().with_columns(token=pl.col("token") - 1)
"""Prompts that name options 0 and 3, which scores of the extraction do not list."""


def late_bank(path: Path, keep: str = "full") -> Bank:
    """A deposit, and a prompt set with other options that was added after it."""
    bank = new_bank(path)
    bank.deposit(logits(), checkpoint=CHECKPOINT, query_set=QUERY_SET.name, keep=keep)
    bank.add_prompts("late", LATE)
    return bank


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return late_bank(tmp_path / "b")


def test_of_runs_that_end_together_one_reads_the_rows(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["logitbank.store.change.rescore"]
    real, read = module.option_scores, list[str]()
    second = threading.Thread(target=_finish, args=(bank, SUITE.checkpoints))

    def scores(deposit: Deposit, *options: Any) -> pl.DataFrame:
        read.append(threading.current_thread().name)
        if len(read) == 1:
            second.start()
            second.join(1.0)  # it waits for this one, or reads them too
        return cast(pl.DataFrame, real(deposit, *options))

    monkeypatch.setattr(module, "option_scores", scores)
    _finish(bank, SUITE.checkpoints)
    second.join(20)
    assert len(read) == 1
    (deposit,) = bank.deposits()
    assert deposit.scores().filter(~pl.col("exact")).collect().height == 2 * QUERIES
    assert missing_options(deposit) is None
    assert verify(bank) == ()


def test_a_complete_target_is_neither_locked_nor_written(bank: Bank) -> None:
    _finish(bank, SUITE.checkpoints)
    folder = bank.deposits()[0].path
    before = {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
    _finish(bank, SUITE.checkpoints)
    assert {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))} == before


def test_later_options_are_reported_and_included(bank: Bank) -> None:
    """Ten queries with two options each."""
    with pytest.raises(BankError, match="20 .*'late'.*org/model step 0.*extract` again"):
        bank.scan("late")
    bank.rescore()
    assert bank.scan("late").collect().height == 2 * QUERIES
    assert bank.rescore() == []
    assert verify(bank) == ()


def test_scores_of_options_named_later_are_those_of_the_rows(bank: Bank) -> None:
    (deposit,) = bank.rescore()
    scores = bank.scan("late").sort("row", "token").collect()
    values = logits().astype(np.float64)
    logprobs = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
    expected = logprobs[scores["row"].to_numpy(), scores["token"].to_numpy()]
    np.testing.assert_allclose(scores["logprob"].to_numpy(), expected, atol=2e-6)
    assert scores["exact"].to_list() == [False] * 2 * QUERIES
    assert deposit.checkpoint == CHECKPOINT


@pytest.mark.parametrize("keep", ["options", "topk:3"])
def test_a_deposit_without_rows_is_excluded_and_reported(tmp_path: Path, keep: str) -> None:
    bank = late_bank(tmp_path / "b", keep)
    assert bank.scan("late").collect().height == 0
    assert bank.rescore() == []
    later = CheckpointId("org/model", step=1)
    bank.deposit(logits(1), checkpoint=later, query_set=QUERY_SET.name, keep=keep)
    for prompts in ("late", None):
        *_, sentence = logitbank.options(bank, prompts=prompts).missing
        assert "org/model step 0" in sentence
    assert logitbank.options(bank, prompts="parity").missing == ()


def test_every_reader_tells_of_options_named_later(bank: Bank, call: Call) -> None:
    lacking = "Scores of 20 options of prompt set 'late'"
    for read in (
        lambda: bank.scan("late"),
        lambda: logitbank.options(bank, prompts="late"),
        lambda: list(Scores([bank], ("late",)).frames()),
        lambda: list(prompt_scores(bank, "late")),
        lambda: bank.sql("SELECT COUNT(*) FROM scores").collect(),
        lambda: bank.sql("SELECT logprob FROM scores WHERE prompt_set = 'late'").collect(),
    ):
        with pytest.raises(BankError, match=lacking):
            read()
    code, _, error = call("query", bank.path, "SELECT step FROM scores")
    assert code == 1
    assert lacking in error
    assert error.count("\n") == 1
    bank.rescore()
    assert bank.sql("SELECT COUNT(*) FROM scores").collect().item() == 4 * QUERIES
    assert logitbank.options(bank, prompts="late").tables["shares"]["missing"].sum() == 0


def test_as_many_options_of_a_table_that_is_lost_are_not_those_that_are_named(
    tmp_path: Path,
) -> None:
    bank = new_bank(tmp_path / "b")
    bank.deposit(logits(), checkpoint=CHECKPOINT, query_set=QUERY_SET.name)
    for file in (bank.path / "prompts").glob("parity-*"):
        file.unlink()
    bank.add_prompts("late", LATE)
    with pytest.raises(BankError, match="20 options .*'late'"):
        bank.scan("late")
    assert len(bank.rescore()) == 1
    assert bank.scan("late").collect().height == 2 * QUERIES


def test_options_lack_of_committed_rows_alone_whatever_is_sealed(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step, blocks in ((0, (0, 2)), (1, (0, 1, 2)), (2, ())):  # blocks of 4, 4 and 2 queries
        with bank.begin(spec(step)) as writer:
            for block in blocks:
                writer.write(block, block_data(writer.layout, block, seed=step))
            if len(blocks) == 3:
                writer.seal()
    half = prompt_table().with_columns(token=pl.when(option="no").then(2).otherwise("token"))
    bank.add_prompts("half", half.cast({"token": pl.Int32}))
    bank.add_prompts("late", LATE)
    for name, options in (("half", 16), ("late", 32)):
        with pytest.raises(BankError, match=f"{options} options .*'{name}' .* 2 deposits"):
            bank.scan(name)
    assert bank.scan("parity").collect().height == 32


def test_scores_of_unselected_models_are_not_read(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for model in ("org/model", "org/other"):
        checkpoint = CheckpointId(model, step=0)
        bank.deposit(logits(), checkpoint=checkpoint, query_set=QUERY_SET.name, keep="options")
    (file,) = [bank.deposits()[1].path / p for p in bank.deposits()[1].state().score_parts]
    file.write_bytes(bytes(file.stat().st_size))
    study = logitbank.options(bank, models=["org/model"])
    assert study.missing == ()


def test_measures_count_prompts_whose_options_are_not_scored(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    first = {"checkpoint": CHECKPOINT, "query_set": QUERY_SET.name, "keep": "options"}
    bank.deposit(logits(), **first)
    more = prompt_table().with_columns(
        prompt_id=pl.format("more-{}", "prompt_id"), token=pl.col("token") + 1
    )
    bank.add_prompts("parity", more)
    bank.deposit(logits(1), **first | {"checkpoint": CheckpointId("org/model", step=1)})
    rows = logitbank.options(bank).result.measures.filter(measure="top1_probability").sort("step")
    assert rows.select("step", "items", "missing").rows() == [
        (0, QUERIES, QUERIES),
        (1, 2 * QUERIES, 0),
    ]
