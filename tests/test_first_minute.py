"""What somebody meets who has just installed it: wrong calls, odd terminals, pipes, no home."""

from pathlib import Path

import pytest

from logitbank.analysis.sources import FAIRNESS, FLUCTUATION, chosen_prompts
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank
from tests import small_banks
from tests.command import Call

PAIRED = {"sentence_id": "s", "paired": True}
SENTENCES = {"verb": "is", "occupation": "dean", "prior": False}


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """A bank with a query set, and no prompts yet."""
    bank = Bank.create(tmp_path / "b.zarr")
    bank.add_query_set(small_banks.QUERY_SET)
    return bank


def test_of_several_prompt_sets_the_one_with_the_family_s_columns_is_taken(bank: Bank) -> None:
    bank.add_prompts("mine", small_banks.prompt_table(**PAIRED))
    bank.add_prompts("yours", small_banks.prompt_table(**SENTENCES))
    assert chosen_prompts([bank], None, FAIRNESS) == "mine"
    assert chosen_prompts([bank], None, FLUCTUATION) == "yours"
    assert chosen_prompts([bank], "yours", FAIRNESS) == "yours"
    bank.add_prompts("winobias", small_banks.prompt_table())
    assert chosen_prompts([bank], None, FAIRNESS) == "winobias"


def test_prompt_sets_are_not_guessed_among(bank: Bank, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'winobias' is not in .*; it has none\. Name one with -"):
        chosen_prompts([bank], None, FAIRNESS)
    for name in ("mine", "yours"):
        bank.add_prompts(name, small_banks.prompt_table(**PAIRED))
    with pytest.raises(UsageError, match=r"it has mine, yours\. Name one with --prompts"):
        chosen_prompts([bank], None, FLUCTUATION)
    with pytest.raises(
        UsageError, match=r"columns of this analysis are in mine, yours\. Name one with --prompts"
    ):
        chosen_prompts([bank], None, FAIRNESS)
    other = small_banks.new_bank(tmp_path / "other")
    with pytest.raises(UsageError, match=r"'x' is not in .*b.zarr, .*other; they have mine, par"):
        chosen_prompts([bank, other], "x", FAIRNESS)


@pytest.mark.parametrize(
    "family",
    [
        *("fairness", "fluctuation", "stereoset", "lambada", "stereotype"),
        *("crows-pairs", "tradeoff", "unqover"),
    ],
)
def test_prompts_that_no_bank_has_are_a_wrong_call(call: Call, tmp_path: Path, family: str) -> None:
    small_banks.new_bank(tmp_path / "b")
    code, out, error = call("analyze", family, tmp_path / "b", *asked(family))
    assert (code, out) == (2, "")
    assert f"{tmp_path / 'b'}" in error
    assert "parity" in error, "it says what there is"
    assert error.count("\n") == 1


def asked(family: str) -> list[str]:
    return [] if family in ("stereotype", "tradeoff") else ["--prompts", "nothing"]


def test_what_is_absent_is_both_a_wrong_call_and_a_matter_of_the_bank(tmp_path: Path) -> None:
    bank = small_banks.new_bank(tmp_path / "b")
    bank.deposit(
        small_banks.logits(),
        checkpoint=small_banks.spec().checkpoint,
        query_set=small_banks.QUERY_SET.name,
    )
    with pytest.raises(AbsentError, match="no deposit has model x; the bank has org/model") as got:
        bank.scan("parity", models="x")
    assert isinstance(got.value, BankError)
    assert isinstance(got.value, UsageError)
    assert got.value.exit_code == 2
