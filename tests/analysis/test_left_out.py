"""Notes about checkpoints without results or with a part of the prompts."""

import shutil
from pathlib import Path

import pytest

import logitbank
from logitbank.errors import AbsentError, BankError
from logitbank.store import Bank, CheckpointId, verify
from tests.support import unqover_cases
from tests.support.evaluation_banks import add_lambada, add_winobias
from tests.support.small_banks import logits, new_bank, spec


def lose(bank: Bank, prompts: str, step: int) -> None:
    """Leave a step of a prompt set as an extraction does that is killed before its first block."""
    for deposit in bank.deposits(prompts=prompts):
        if deposit.checkpoint.step == step:
            spec = deposit.spec
            shutil.rmtree(deposit.path)
            bank.begin(spec).close()
    assert verify(bank) == ()


@pytest.fixture
def begun(tmp_path: Path) -> Bank:
    """Steps 0 and 8 have all ten prompts, step 16 is begun and has none."""
    bank = new_bank(tmp_path / "b")
    for step in (0, 8, 16):
        checkpoint = spec(step).checkpoint
        bank.deposit(logits(step), checkpoint=checkpoint, query_set=spec(step).query_set)
    lose(bank, "parity", 16)
    assert [len(d.committed()) for d in bank.deposits()] == [1, 1, 0]
    return bank


EXCLUDED = "Excluded: 1 checkpoint without results (org/model step 16). Fix: logitbank extract"


def test_a_checkpoint_without_results_is_noted_and_is_no_end_of_a_curve(begun: Bank) -> None:
    study = logitbank.options(begun)
    assert EXCLUDED in study.missing
    assert EXCLUDED in logitbank.options(begun, models=["org/model"]).missing
    found = [str(finding) for finding in study.findings]
    assert any("step 8" in text for text in found)
    assert not any("step 16" in text for text in found)


def test_a_model_without_scores_of_a_prompt_set_is_named(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "bank")
    checkpoint = CheckpointId("toy-neox", step=0)
    bank.deposit(logits(), checkpoint=checkpoint, query_set=spec(0).query_set)
    add_lambada(bank, {0: 4}, words=8, model="toy-bert")
    for analyse in (
        lambda: bank.scan("parity", models=["toy-bert"]),
        lambda: logitbank.options(bank, prompts="parity", models=["toy-bert"]),
    ):
        with pytest.raises(AbsentError, match="'parity'.*toy-bert.*toy-neox"):
            analyse()
    with pytest.raises(AbsentError, match="'lambada'.*toy-neox"):
        logitbank.lambada(bank, models=["toy-neox"])


def excluded(model: str, step: int) -> str:
    return f"Excluded: 1 checkpoint without results ({model} step {step}). Fix: logitbank extract"


def test_tradeoff_names_the_missing_side(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    add_lambada(bank, {0: 3, 8: 20, 16: 22, 32: 24})
    add_winobias(bank, steps=(8, 16, 32), skew_from=16)
    study = logitbank.tradeoff(bank)
    assert study.missing == ()
    (alone,) = (text for text in study.summary if "not used" in text)
    assert alone.startswith("1 checkpoint has LAMBADA accuracy but no ")
    lose(bank, "lambada", 32)
    study = logitbank.tradeoff(bank)
    assert study.missing == (excluded("toy", 32),)
    _, alone = (text for text in study.summary if "not used" in text)
    assert alone.startswith("1 checkpoint has ")
    assert "but no LAMBADA accuracy" in alone


def test_what_filters_are_compared_on_and_has_no_row_is_named(tmp_path: Path) -> None:
    path = unqover_cases.make_bank(tmp_path / "b", steps=[0, 8], nurses={0: 0.0, 8: 6.0})
    bank = Bank.open(path)
    assert logitbank.analysis.debias_compare(bank, []).missing == ()
    lose(bank, "unqover-gender", 8)
    compared = logitbank.analysis.debias_compare(bank, []).missing
    assert compared == (excluded("toy", 8),)
    assert logitbank.analysis.debias_compare(bank, [], step=0).missing == ()
    with pytest.raises(BankError, match="options of unqover-gender have no score"):
        logitbank.analysis.debias_train(bank, prompts="unqover-gender", split=None, k=4)
