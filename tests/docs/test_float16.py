"""What float16 log-probabilities lose: the bounds of docs/metrics.md, on real banks."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.special import log_softmax, rel_entr

from logitbank.analysis.comparison.compare import compare
from logitbank.analysis.frames.expressions import jsd_parts, scaled
from logitbank.store import Bank, CheckpointId, OptionTokens, rescore
from tests.support.paths import ROOT
from tests.support.small_banks import QUERY_SET

pytestmark = pytest.mark.numerical

DOCUMENT = (ROOT / "docs" / "metrics.md").read_text()
FLOAT32 = 4e-6  # of computing the softmax in float32, at logits up to 60
LOGITS = arrays.arrays(np.float32, (10, 8), elements=st.floats(-30, 30, width=32))


def half_step(logprob: np.ndarray | float) -> np.ndarray:
    """Half the distance of two float16 numbers at this magnitude."""
    magnitude = np.maximum(np.abs(logprob), 2.0**-14)
    return np.asarray(2.0 ** (np.floor(np.log2(magnitude)) - 11))


def bound(row: np.ndarray) -> np.ndarray:
    """h of a row: that of its lowest log-probability, and what float32 had lost before."""
    return half_step(row.min(axis=-1) - FLOAT32) + FLOAT32


@given(st.floats(-65504, 0))
def test_a_log_probability_is_off_by_half_a_step(value: float) -> None:
    error = abs(float(np.float16(value)) - value)
    assert error <= half_step(value)


def test_the_table_of_the_document_is_right() -> None:
    section = DOCUMENT.split("## What float16 loses")[1]
    rows = re.findall(r"^\| ([\d.]+) to ([\d.]+) \| 2\^−(\d+) = ([\d.]+)", section, re.MULTILINE)
    assert len(rows) >= 5
    for low, high, power, value in rows:
        inside = [float(low), (float(low) + float(high)) / 2, float(high) * 0.999]
        assert [float(half_step(-x)) for x in inside] == [2.0 ** -int(power)] * 3
        assert float(value) == pytest.approx(2.0 ** -int(power), rel=0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("float16")


def banked(folder: Path, logits: np.ndarray) -> Bank:
    bank = Bank.create(folder / f"{len(list(folder.iterdir()))}")
    bank.add_query_set(QUERY_SET)
    checkpoint = CheckpointId("m", step=0)
    bank.deposit(logits, checkpoint=checkpoint, query_set=QUERY_SET.name, dtype="float16")
    return bank


@settings(max_examples=30, deadline=None)
@given(LOGITS)
def test_rows_divergences_and_probabilities_stay_within_their_bounds(
    folder: Path, logits: np.ndarray
) -> None:
    true = log_softmax(logits.astype(np.float64), axis=1)
    h = bound(true)
    (deposit,) = banked(folder, logits).deposits()
    stored = deposit.logprobs().astype(np.float64)
    assert (np.abs(stored - true) <= half_step(true - FLOAT32) + FLOAT32).all()
    assert (np.abs(np.log(np.exp(stored).sum(axis=1))) <= h).all()
    p, q = np.exp(true), np.exp(log_softmax(stored, axis=1))
    assert (np.abs(q - p) <= p * np.expm1(2 * h)[:, None] + 1e-15).all()
    kl = rel_entr(p, q).sum(axis=1)
    assert (kl <= h**2 / 2 + 1e-12).all()


@settings(max_examples=30, deadline=None)
@given(LOGITS, st.integers(0, 2))
def test_jsd_parts_stay_within_their_bound(folder: Path, logits: np.ndarray, gold: int) -> None:
    true = log_softmax(logits.astype(np.float64), axis=1)
    (deposit,) = banked(folder, logits).deposits()
    options = [1, 4, 6]
    exact = scaled(jsd_parts(true[:, options], gold))
    read = scaled(jsd_parts(deposit.logprobs(tokens=options), gold))
    h = bound(true[:, options])
    assert (np.abs(read - exact) <= 0.51 * h[:, None] + 1e-12).all()


@pytest.mark.whole
@settings(max_examples=30, deadline=None)
@given(
    arrays.arrays(
        np.float32,
        (10, 8),
        elements=st.sampled_from([0.0, 0.0005, 0.001, 0.002, 3.0, 3.001, -9.0, -9.004]),
    )
)
def test_ranks_of_tokens_nobody_listed_are_intervals_around_the_true_one(
    folder: Path, logits: np.ndarray
) -> None:
    (deposit,) = banked(folder, logits).deposits()
    rescore(deposit, OptionTokens.build([range(8)] * 10))
    rows = deposit.scores().collect().filter(kind="option")
    assert rows.height == 80
    assert not rows["exact"].any()
    for query, token, rank, ties in rows.select("query", "token", "rank", "ties").iter_rows():
        row = logits[query]
        low, high = int((row > row[token]).sum()) + 1, int((row >= row[token]).sum())
        assert rank <= low <= high <= rank + ties


def test_scores_listed_at_extraction_have_no_error_of_float16(folder: Path) -> None:
    """Logits one float32 step apart: rank and logit of the highest are exact."""
    logits = np.full((10, 8), 20, np.float32)
    logits[:, 5] = np.nextafter(np.float32(20), np.float32(21))
    bank = banked(folder, logits)
    top = bank.deposits()[0].scores().collect().filter(kind="top")
    assert top["token"].to_list() == [5] * 10
    assert top["ties"].to_list() == [0] * 10
    assert top["logit"].to_list() == logits[:, 5].tolist()
    (d,) = compare(bank.path, bank.path).result.logits.to_dicts()
    assert d["argmax_changed"] == 0
