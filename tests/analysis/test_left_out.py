"""Checkpoints whose deposits have no row are named, and are no end of a curve."""

from pathlib import Path

import pytest

import logitbank
from logitbank.errors import AbsentError
from logitbank.store import Bank, CheckpointId, repair, verify
from tests.support.evaluation_banks import add_lambada
from tests.support.small_banks import logits, new_bank, spec


@pytest.fixture
def repaired(tmp_path: Path) -> Bank:
    """Steps 0 and 8 have all ten prompts, step 16 had them, and lost them to a repair."""
    bank = new_bank(tmp_path / "b")
    for step in (0, 8, 16):
        checkpoint = spec(step).checkpoint
        bank.deposit(logits(step), checkpoint=checkpoint, query_set=spec(step).query_set)
    file = next(bank.path.glob("org%2Fmodel/main/16/q-*/scores/all.parquet"))
    file.write_bytes(bytes(file.stat().st_size))
    repair(bank, verify(bank))
    assert verify(bank) == ()
    assert [len(d.committed()) for d in bank.deposits()] == [1, 1, 0]
    return bank


LEFT_OUT = (
    "Left out is 1 checkpoint whose deposit has no row: org/model step 16; `logitbank extract`"
    " fills it."
)


def test_analyses_name_a_checkpoint_that_has_no_row(repaired: Bank) -> None:
    assert LEFT_OUT in logitbank.options(repaired).summary.findings
    assert LEFT_OUT in logitbank.curves(repaired).summary.findings
    others = logitbank.options(repaired, models=["org/model"]).summary.findings
    assert LEFT_OUT in others


def test_such_a_checkpoint_is_no_end_of_a_curve(repaired: Bank) -> None:
    findings = logitbank.curves(repaired).summary.findings
    assert findings[0].startswith("parity, step 0 → step 8: ")
    assert "none" not in findings[0]


def test_a_bank_that_is_whole_says_nothing_of_it(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    bank.deposit(logits(), checkpoint=spec(0).checkpoint, query_set=spec(0).query_set)
    assert not any("no row" in line for line in logitbank.options(bank).summary.findings)


def test_a_model_that_was_asked_other_prompts_alone_is_said_to_be_there(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    checkpoint = CheckpointId("demo", step=0)
    bank.deposit(logits(), checkpoint=checkpoint, query_set=spec(0).query_set)
    add_lambada(bank, {0: 4}, words=8, model="demo-bert")
    message = (
        r"demo-bert has no scores of prompt set 'parity', only of others; of it the bank has demo"
    )
    with pytest.raises(AbsentError, match=message):
        bank.scan("parity", models=["demo-bert"])
    with pytest.raises(AbsentError, match=message):
        logitbank.options(bank, prompts="parity", models=["demo-bert"])
    with pytest.raises(AbsentError, match=r"demo has no scores of prompt set 'lambada', only of"):
        logitbank.lambada(bank, models=["demo"])
    with pytest.raises(AbsentError, match=r"no deposit has model nope; the bank has demo"):
        bank.scan("parity", models=["nope"])
