"""Log-sum-exp and log-probabilities of rows on a CPU."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from logitbank.engine.workers.blocks.reduce import ReducingSink
from logitbank.engine.workers.blocks.softmax import Softmax
from logitbank.errors import EngineError
from logitbank.store.deposits.entries import Normalised
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import Keep, OptionTokens

pytestmark = pytest.mark.numerical


def exact_logsumexp(row: np.ndarray) -> float:
    """With every sum rounded once, and the highest subtracted."""
    values = row.astype(np.float64).tolist()
    highest = max(values)
    return highest + math.log(math.fsum(math.exp(value - highest) for value in values))


def random_logits(
    offset: float, *, scale: float = 3, count: int = 5, vocab: int = 999
) -> np.ndarray:
    values = np.random.default_rng(int(abs(offset))).normal(offset, scale, (count, vocab))
    return values.astype(np.float32)


def taken(rows: Iterator[Normalised]) -> list[tuple[float, np.ndarray | None]]:
    """As they are before the next is taken."""
    return [(lse, None if stored is None else stored.copy()) for lse, stored in rows]


@pytest.mark.parametrize(
    "offset", [0.0, 3.0, 500.0, -500.0, 690.0, 720.0, -620.0, -700.0, -745.0, 3000.0, -3000.0]
)
def test_log_sum_exp_is_that_of_float64_wherever_logits_lie(offset: float) -> None:
    """Powers end at 709 and lose digits below -708: there the highest logit is subtracted."""
    logits = random_logits(offset)
    found = taken(Softmax("float32").rows(torch.from_numpy(logits)))
    assert len(found) == len(logits)
    for row, (logsumexp, stored) in zip(logits, found, strict=True):
        exact = exact_logsumexp(row)
        assert logsumexp == pytest.approx(exact, rel=1e-15, abs=1e-14)
        assert stored is not None
        np.testing.assert_allclose(stored, row.astype(np.float64) - exact, rtol=2**-23)


@pytest.mark.parametrize("scale", [1e-3, 100.0, 1000.0])
def test_a_row_may_be_flat_or_steep(scale: float) -> None:
    for row, (logsumexp, _) in zip(
        logits := random_logits(1.0, scale=scale),
        taken(Softmax(None).rows(torch.from_numpy(logits))),
        strict=True,
    ):
        assert logsumexp == pytest.approx(exact_logsumexp(row), rel=1e-15, abs=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_are_stored_as_numpy_rounds_them(dtype: str) -> None:
    logits = random_logits(2.0, vocab=50_304)
    found = taken(Softmax(dtype).rows(torch.from_numpy(logits)))  # type: ignore[arg-type]
    for row, (logsumexp, stored) in zip(logits, found, strict=True):
        assert logsumexp == pytest.approx(exact_logsumexp(row), rel=1e-15)
        assert stored is not None
        assert stored.dtype == dtype
        exact = row.astype(np.float64) - logsumexp
        through = exact.astype(np.float32) if dtype == "float16" else exact
        assert stored.tobytes() == through.astype(dtype).tobytes()


def test_batches_of_other_widths_follow_each_other() -> None:
    rows = Softmax("float32")
    for vocab in (8, 3, 8):
        logits = random_logits(0.0, count=2, vocab=vocab)
        for row, (logsumexp, stored) in zip(
            logits, taken(rows.rows(torch.from_numpy(logits))), strict=True
        ):
            assert stored is not None
            assert logsumexp == pytest.approx(exact_logsumexp(row), rel=1e-14)
            assert stored.shape == (vocab,)


@pytest.mark.parametrize(("bad", "expected"), [(math.inf, math.inf), (math.nan, math.nan)])
def test_a_row_that_is_not_finite_says_so_without_a_warning(bad: float, expected: float) -> None:
    logits = random_logits(0.0, count=2)
    logits[0, 7] = bad
    (first, _), (second, _) = taken(Softmax("float16").rows(torch.from_numpy(logits)))
    assert first == pytest.approx(expected, nan_ok=True)
    assert second == pytest.approx(exact_logsumexp(logits[1]), rel=1e-14)


def test_a_token_that_cannot_come_adds_nothing() -> None:
    logits = random_logits(0.0, count=1)
    logits[0, 3] = -math.inf
    ((found, _),) = taken(Softmax(None).rows(torch.from_numpy(logits)))
    assert found == pytest.approx(exact_logsumexp(np.delete(logits[0], 3)), rel=1e-14)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_logit_that_is_not_finite_is_refused_with_its_query(dtype: str, bad: float) -> None:
    keep = Keep.parse("full")
    layout = Layout.plan(queries=2, vocab=8, dtype=dtype, keep=keep)  # type: ignore[arg-type]
    options = OptionTokens.build([[1, 2], [5]])
    sink = ReducingSink(BlockReducer(layout, 0, options=options, vocab_entries=8))
    logits = random_logits(0.0, count=2, vocab=8)
    logits[1, 6] = bad
    sink([0, 1], torch.from_numpy(logits))
    with pytest.raises(EngineError, match="1 of 8 logits are not finite") as caught:
        sink.finish()
    assert caught.value.query == 1
