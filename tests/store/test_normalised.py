"""Rows that sum to one: what `logprobs` gives on request, against SciPy in float64."""

import numpy as np
import pytest
from scipy.special import log_softmax

from logitbank.store import Bank, CheckpointId, Deposit, Query, QuerySet

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


def test_rows_in_any_order_are_decoded_once(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = Deposit.stored_rows, []

    def noting(self: Deposit, rows: np.ndarray, *others: object, **options: object) -> np.ndarray:
        asked.extend(rows.tolist())
        return read(self, rows, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Deposit, "stored_rows", noting)
    rows = np.random.default_rng(0).permutation(QUERIES)
    bank.deposits()[0].logprobs(rows, normalised=True)
    assert asked == sorted(rows)
