"""Banks that keep states, damaged: what is named, what can still be read, what a repair does."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import DamagedError
from logitbank.store import Bank, repair, verify
from tests.support.hidden_banks import (
    fill,
    head,
    hidden_bank,
    hidden_block,
    hidden_spec,
    states,
    true_logprobs,
)
from tests.support.small_banks import QUERIES, flip, new_bank, recommit, rewrite


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return hidden_bank(tmp_path / "b", steps=(0, 1))


def compute_digest(step: int) -> str:
    return head(step + 1).digest


def test_heads_that_were_deleted_are_named_and_scores_still_read(bank: Bank) -> None:
    shutil.rmtree(bank.path / "heads" / compute_digest(0))
    (lost, other) = bank.deposits()
    with pytest.raises(DamagedError, match="heads/.* org/model step 0, q-"):
        lost.logprobs([0])
    assert bank.scan("parity").collect().height == 4 * QUERIES
    assert other.logprobs([0]).shape == (1, 6)
    (damage,) = verify(bank)
    assert (damage.path, damage.problem) == (f"heads/{compute_digest(0)}/zarr.json", "missing")
    assert "org/model step 0" in damage.detail


FLIPS = ("weight/c/0/0", "bias/c/0", "weight/zarr.json", "zarr.json")


@pytest.mark.parametrize("name", FLIPS)
def test_a_changed_byte_of_a_head_is_named_and_never_read(bank: Bank, name: str) -> None:
    file = bank.path / "heads" / compute_digest(0) / name
    flip(file)
    (deposit, _) = bank.deposits()
    for tokens in (None, [2]):
        with pytest.raises(DamagedError, match="heads/"):
            deposit.logprobs([0], tokens)
    assert [d.path for d in verify(bank)] == [f"heads/{compute_digest(0)}/{name}"]


def test_a_head_under_another_name_is_named(bank: Bank) -> None:
    heads = bank.path / "heads"
    shutil.rmtree(heads / compute_digest(0))
    shutil.copytree(heads / compute_digest(1), heads / compute_digest(0))
    (deposit, _) = bank.deposits()
    for tokens in (None, [2]):
        with pytest.raises(DamagedError, match="another head"):
            deposit.logprobs([0], tokens)
    assert ("changed", f"heads/{compute_digest(0)}/zarr.json") in [
        (d.problem, d.path) for d in verify(bank)
    ]


def test_a_log_sum_exp_that_does_not_follow_is_named_and_run_again(tmp_path: Path) -> None:
    bank, of = new_bank(tmp_path / "b"), head()
    with bank.begin(hidden_spec(digest=bank.put_head(of))) as writer:
        for block in range(3):
            data = hidden_block(writer.layout, block, of)
            if block == 1:
                off = data.scores.with_columns(pl.col("logsumexp") + 0.01)
                data = type(data)(data.rows, off)
            writer.write(block, data)
        writer.seal()
    (damage,) = verify(bank)
    assert damage.path.endswith("/hidden/c/1/0")
    assert damage.problem == "changed"
    assert "differs by 0.01 nats" in damage.detail
    assert repair(bank, [damage]).removed == (damage.deposit,)
    fill(bank, 0)
    assert verify(bank) == ()


def test_a_deposit_that_names_a_head_of_another_shape_is_named(bank: Bank) -> None:
    (deposit, _) = bank.deposits()
    wide = bank.put_head(head(vocab=7))
    rewrite(
        deposit.path / "zarr.json",
        lambda d: d["attributes"]["logitbank"].update(heads={"next_token": wide}),
    )
    recommit(deposit.path, "zarr.json")
    (again, _) = Bank.open(bank.path).deposits()
    with pytest.raises(DamagedError, match="7 outputs .* 5 entries"):
        again.logprobs([0])
    assert {d.problem for d in verify(bank)} == {"changed"}


BAD: dict[str, Callable[[dict[str, object]], object]] = {
    "heads": lambda a: a.update(heads={}),
    "a head of no kind": lambda a: a.update(heads={"previous_token": "0" * 64}),
    "a path": lambda a: a.update(heads={"next_token": "../" * 10}),
    "width": lambda a: a.pop("width"),
    "a width of nothing": lambda a: a.update(width=0),
    "level": lambda a: a.update(keep="states"),
}


@pytest.mark.parametrize("what", BAD)
def test_attributes_that_cannot_be_are_refused(bank: Bank, what: str) -> None:
    (deposit, _) = bank.deposits()
    rewrite(deposit.path / "zarr.json", lambda d: BAD[what](d["attributes"]["logitbank"]))
    with pytest.raises(DamagedError, match="does not describe a deposit"):
        Bank.open(bank.path).deposits()


def test_a_repair_removes_a_damaged_head_alone(bank: Bank) -> None:
    own = f"heads/{compute_digest(0)}"
    (bank.path / own / "weight/c/0/0").write_bytes(b"nothing")
    assert repair(bank, verify(bank)).removed == (own,)
    assert not (bank.path / own).exists()
    lost, other = bank.deposits()
    assert (lost.lacks_head, other.lacks_head) == (True, False)
    (damage,) = verify(bank)
    assert repair(bank, [damage]).removed == ()
    bank.put_head(head(1))
    assert verify(bank) == ()
    expected = true_logprobs(head(), states())
    np.testing.assert_allclose(bank.deposits()[0].logprobs(), expected, atol=2e-6)
