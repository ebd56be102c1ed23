"""Options that were named after an extraction, by several runs that end at the same time."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from logitbank.engine.extract import _finish
from logitbank.store import Bank, CheckpointId, Deposit, verify
from tests.small_banks import QUERIES, QUERY_SET, logits, new_bank, prompt_table

pytestmark = pytest.mark.numerical

CHECKPOINT = CheckpointId("org/model", step=0)
SUITE = cast(Any, SimpleNamespace(checkpoints=(SimpleNamespace(id=CHECKPOINT),)))


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """A deposit of rows, and prompts that name options 0 and 3, which its scores do not list."""
    bank = new_bank(tmp_path / "b")
    bank.deposit(logits(), checkpoint=CHECKPOINT, query_set=QUERY_SET.name)
    bank.add_prompts("late", prompt_table().with_columns(token=pl.col("token") - 1))
    return bank


def test_of_runs_that_end_together_one_reads_the_rows(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["logitbank.store.rescore"]
    real, read = module.option_scores, list[str]()
    second = threading.Thread(target=_finish, args=(bank, SUITE))

    def scores(deposit: Deposit, *options: Any) -> pl.DataFrame:
        read.append(threading.current_thread().name)
        if len(read) == 1:
            second.start()
            second.join(1.0)  # it waits for this one, or reads them too
        return cast(pl.DataFrame, real(deposit, *options))

    monkeypatch.setattr(module, "option_scores", scores)
    _finish(bank, SUITE)
    second.join(20)
    assert len(read) == 1
    (deposit,) = bank.deposits()
    assert deposit.scores().filter(~pl.col("exact")).collect().height == 2 * QUERIES
    assert bank.lacking_options(deposit) is None
    assert verify(bank) == ()


def test_where_nothing_lacks_nothing_is_locked_or_written(bank: Bank) -> None:
    _finish(bank, SUITE)
    folder = bank.deposits()[0].path
    before = {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
    _finish(bank, SUITE)
    assert {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))} == before
