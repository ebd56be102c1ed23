"""Rows that sum to one: what `logprobs` gives on request, against SciPy in float64."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.filter.filters import Filter
from tests.support.small_banks import block_data, new_bank, spec

QUERIES, VOCAB, PADDING = 140, 6000, 100
CHECKPOINT = CheckpointId("m", step=0)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Rows of float16, of which the last outputs are padding."""
    bank = Bank.create(tmp_path_factory.mktemp("normalised") / "b")
    queries = QuerySet("5e" * 32, tuple(Query((i,), 0) for i in range(QUERIES)))
    name = bank.add_query_set(queries)
    logits = np.random.default_rng(0).normal(0, 3, (QUERIES, VOCAB)).astype(np.float32)
    entries = VOCAB - PADDING
    bank.deposit(
        logits, checkpoint=CHECKPOINT, query_set=name, dtype="float16", vocab_entries=entries
    )
    return bank


def summed(logprobs: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(logprobs.astype(np.float64)).sum(axis=1))


def test_rows_sum_to_one_where_stored_ones_do_not(bank: Bank) -> None:
    (deposit,) = bank.deposits()
    stored, rows = deposit.logprobs(), deposit.logprobs(normalised=True)
    assert np.abs(summed(stored) - 1).max() > 1e-5
    assert np.abs(summed(rows) - 1).max() < 1e-6
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, log_softmax(stored.astype(np.float64), axis=1), rtol=1e-7)


@pytest.mark.parametrize("rows", [None, [139, 3, 3, 128, 0], []])
@pytest.mark.parametrize("tokens", [None, [5990, 7, 7], []])
def test_a_part_is_that_of_whole_rows(
    bank: Bank, rows: list[int] | None, tokens: list[int] | None
) -> None:
    (deposit,) = bank.deposits()
    whole = log_softmax(deposit.logprobs().astype(np.float64), axis=1)
    whole = whole if rows is None else whole[np.array(rows, int)]
    whole = whole if tokens is None else whole[:, np.array(tokens, int)]
    found = deposit.logprobs(rows, tokens, normalised=True)
    np.testing.assert_allclose(found, whole, rtol=1e-7)
    assert found.shape == whole.shape


def test_a_divergence_by_hand_is_right(bank: Bank) -> None:
    """Of a row and the same one with each value off by a step of float16, p and p·e^d."""
    p = bank.deposits()[0].logprobs(normalised=True).astype(np.float64)
    stored = bank.deposits()[0].logprobs().astype(np.float64)
    wrong = (np.exp(p) * (p - stored)).sum(axis=1)
    # KL(p ‖ p) is 0; of the stored row it is the log of its sum, and negative where that is over 1.
    np.testing.assert_allclose(wrong, -np.log(summed(stored)), atol=1e-6)
    assert wrong.min() < 0 < wrong.max()


@pytest.mark.parametrize("mode", ["truncate", "keep_tail"])
def test_rows_of_a_view_sum_to_one(bank: Bank, mode: str) -> None:
    by = Filter(np.eye(3) / 2, np.ones(3), mode=mode)  # type: ignore[arg-type]
    (deposit,) = bank.filtered(by, name="v").deposits()
    rows = deposit.logprobs(normalised=True)
    assert np.abs(summed(rows) - 1).max() < 1e-6
    stored = deposit.logprobs()
    np.testing.assert_array_equal(np.isneginf(rows), np.isneginf(stored))
    expected = log_softmax(stored[:5].astype(np.float64), axis=1)
    np.testing.assert_allclose(rows[:5], expected, rtol=1e-7)
    tokens = rows[0].argsort()[-2:]
    found = deposit.logprobs([0], tokens, normalised=True)
    np.testing.assert_array_equal(found, rows[:1, tokens])


def test_what_is_refused_otherwise_is_refused(bank: Bank, tmp_path: Path) -> None:
    (deposit,) = bank.deposits()
    with pytest.raises(UsageError, match="token 6000 is not in the deposit"):
        deposit.logprobs([0], [6000], normalised=True)
    half = new_bank(tmp_path / "half")
    with half.begin(spec(0)) as writer:
        writer.write(0, block_data(writer.layout, 0))
    with pytest.raises(BankError, match="6 of 10"):
        half.deposits()[0].logprobs(normalised=True)
