"""The frozen bank of states and heads of format 1: read, verified, completed on a copy."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import logitbank
from logitbank.errors import DamagedError
from logitbank.store import Bank, Deposit, Operation, shrink, verify
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.heads.stored import StoredHead
from logitbank.store.tables.prompt_tables import option_tokens
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data" / "format-1"
AFTER = {
    "None": (),
    "Scale(by=0.5)": (Operation("scale", 0.5),),
    "SoftCap(at=5.0)": (Operation("soft_cap", 5.0),),
}
"""Operations on logits, by their text in `states.json`."""


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return logitbank.open(str(shutil.copytree(DATA / "states", tmp_path / "b")))


def deposits(bank: Bank) -> list[tuple[Deposit, dict[str, Any]]]:
    """Each deposit, and what was worked out of it when the bank was made."""
    values = json.loads((DATA / "states.json").read_text())
    by_key = {(v["step"], v["query_set"]): v for v in values}
    there = [(d, by_key.pop((d.checkpoint.step, d.query_set))) for d in bank.deposits()]
    assert not by_key
    return there


def test_states_and_heads_give_what_they_gave(bank: Bank) -> None:
    assert verify(bank) == ()
    weights, biases, after = [], [], []
    for deposit, values in deposits(bank):
        rows = values["rows"]
        np.testing.assert_array_equal(deposit.hidden(rows), np.array(values["states"])[rows])
        expected = np.array(values["logprobs"])[rows]
        np.testing.assert_allclose(deposit.logprobs(rows), expected, rtol=0, atol=2e-6)
        one = deposit.logprobs(rows, [1])
        np.testing.assert_allclose(one, expected[:, [1]], rtol=0, atol=2e-6)
        (digest,) = deposit.spec.heads.values()
        head = StoredHead.open(bank.path, digest).read()
        assert head.after == AFTER[values["after"]]
        weights.append(head.dtype)
        biases.append(head.bias is not None)
        after += [one.name for one in head.after]
    assert {*weights} == {"float32", "float16", "bfloat16"}
    assert {*biases} == {True, False}
    assert len({*after}) == 2


def test_a_scan_gives_the_options_of_its_rows(bank: Bank) -> None:
    there = {(d.checkpoint.step, d.query_set): v for d, v in deposits(bank)}
    for prompts in ("wörter", "sätze/next"):
        seen = 0
        for row in bank.scan(prompts).collect().iter_rows(named=True):
            values = there[row["step"], row["query_set"]]["logprobs"][row["row"]]
            assert row["logprob"] == pytest.approx(values[row["token"]], abs=2e-6)
            assert row["rank"] == 1 + sum(v > values[row["token"]] for v in values)
            seen += 1
        assert seen == 2 * sum(
            len(v["rows"]) for (_, q), v in there.items() if q in _of(bank, prompts)
        )


def _of(bank: Bank, prompts: str) -> list[str]:
    return bank.prompts(prompts).select("query_set").unique().collect()["query_set"].to_list()


def test_its_unfinished_deposit_is_completed(bank: Bank) -> None:
    ((deposit, values),) = [(d, v) for d, v in deposits(bank) if not d.complete]
    options, entries = option_tokens(bank.path, deposit.query_set), deposit.spec.vocab_entries
    (digest,) = deposit.spec.heads.values()
    states = np.array(values["states"], np.float32)
    logits = StoredHead.open(bank.path, digest).read().logits(states)
    with bank.begin(deposit.spec) as writer:
        assert writer.missing() == [1]
        reducer = BlockReducer(writer.layout, 1, options=options, vocab_entries=entries)
        for i, row in enumerate(writer.layout.rows(1)):
            reducer.put_states([i], states[row][None])
            reducer.put(i, logits[row])
        writer.write(1, reducer.finish())
        writer.seal()
    assert deposit.sealed
    np.testing.assert_allclose(deposit.logprobs(), values["logprobs"], rtol=0, atol=2e-6)


def test_it_becomes_full_rows_on_the_way(bank: Bank, tmp_path: Path) -> None:
    whole = {d.path.relative_to(bank.path): values for d, values in deposits(bank) if d.sealed}
    assert len(whole) > 2
    shrink(bank.path, tmp_path / "rows", keep="full", dtype="float32")
    rows = Bank.open(tmp_path / "rows")
    assert verify(rows) == ()
    assert {deposit.path.relative_to(rows.path) for deposit in rows.deposits()} == {*whole}
    for deposit in rows.deposits():
        values = whole[deposit.path.relative_to(rows.path)]
        expected = np.array(values["logprobs"])[values["rows"]]
        np.testing.assert_allclose(deposit.logprobs(values["rows"]), expected, rtol=0, atol=2e-6)


def test_scores_stay_without_heads(bank: Bank) -> None:
    keys = ("step", "prompt_id", "option")
    scores = bank.scan("wörter").sort(keys).collect()
    shutil.rmtree(bank.path / "heads")
    assert bank.scan("wörter").sort(keys).collect().equals(scores)
    with pytest.raises(DamagedError, match="heads/"):
        bank.deposits()[0].logprobs()
