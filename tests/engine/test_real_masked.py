"""The trained masked models of `make real`: both engines against plain transformers.

It converts the models and fine-tunes the BERT where `make real` has not.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax

from logitbank.engine.backends.protocol import EngineName
from logitbank.engine.extract import extract
from logitbank.store import Bank
from tests.support.paths import ROOT
from tests.support.preloaded import require_vllm

LARGEST = 1e-4
"""Nats, of log-probabilities over all 591 tokens."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("default"),  # transformers uses what other packages call outdated
]
Logits = dict[str, np.ndarray]
"""Of plain transformers, by the id of the prompt."""


@pytest.fixture(scope="module")
def series() -> Path:
    from scripts.real.masked import masked_base, masked_series

    folder = ROOT / "real" / "masked"
    masked_base("bert", folder / "base")
    masked_base("albert", folder / "albert" / "step0")
    masked_series(folder / "base", folder / "checkpoints", lambda update, loss: None)
    return folder


def reference(checkpoint: Path, texts: dict[str, object], tmp: Path) -> Logits:
    (tmp / "texts.json").write_text(json.dumps([*texts.values()]))
    files = [checkpoint, tmp / "texts.json", tmp / "reference.npz"]
    # As a module: the tests' own `tokenizers` would stand before the package of that name.
    command = [sys.executable, "-m", "tests.support.real_masked_reference", *map(str, files)]
    subprocess.run(command, cwd=ROOT, check=True)
    found = np.load(tmp / "reference.npz")
    return {name: found[str(number)] for number, name in enumerate(texts)}


def check_masked(bank: Bank, tmp: Path, checkpoint: Path) -> None:
    """Compare the rows and the ranks of both options at every prompt."""
    from scripts.real.reactions import halogens

    logits = reference(checkpoint, {p.id: p.text for p in halogens().prompts}, tmp)
    scores = bank.scan("halogens").collect()
    assert len(scores) == 2 * len(logits) == 68
    (deposit,) = bank.deposits(prompts="halogens")
    rows = deposit.logprobs()
    assert rows.shape[1] == 591
    largest = 0.0
    for row in scores.iter_rows(named=True):
        expected = logits[row["prompt_id"]]
        own = log_softmax(expected.astype(np.float64))
        largest = max(largest, np.abs(rows[row["row"]] - own).max())
        largest = max(largest, abs(row["logprob"] - own[row["token"]]))
        assert row["rank"] == 1 + np.count_nonzero(expected > expected[row["token"]])
    print(f"{deposit.spec.provenance['engine']}: largest difference {largest:.1e} nats")
    assert largest <= LARGEST


@pytest.mark.parametrize("keep", ["full", "hidden"])
@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_a_tuned_bert_s_bank_is_what_plain_transformers_gives(
    engine: EngineName, keep: str, series: Path, tmp_path: Path
) -> None:
    from scripts.real.reactions import halogens

    if engine == "vllm":
        require_vllm()
    bank = tmp_path / "bank.zarr"
    summary = extract(
        bank,
        suites=str(series / "checkpoints"),
        steps="40",
        prompts=halogens(),
        engine=engine,
        keep=keep,
        dtype="float32",
    )
    assert summary.complete
    check_masked(Bank.open(bank), tmp_path, series / "checkpoints" / "step40")


def test_an_albert_s_bank_is_what_plain_transformers_gives(series: Path, tmp_path: Path) -> None:
    from scripts.real.reactions import halogens

    bank = tmp_path / "bank.zarr"
    summary = extract(
        bank,
        suites=str(series / "albert"),
        prompts=halogens(),
        engine="transformers",
        dtype="float32",
    )
    assert summary.complete
    check_masked(Bank.open(bank), tmp_path, series / "albert" / "step0")


def test_next_sentence_scores_are_those_of_plain_transformers(series: Path, tmp_path: Path) -> None:
    from scripts.real.reactions import products

    prompts = products()
    bank = tmp_path / "bank.zarr"
    summary = extract(
        bank,
        suites=str(series / "checkpoints"),
        steps="40",
        prompts=prompts,
        engine="transformers",
        dtype="float32",
    )
    assert summary.complete
    texts: dict[str, object] = {p.id: (p.context, p.sentence) for p in prompts.prompts}
    logits = reference(series / "checkpoints" / "step40", texts, tmp_path)
    scores = Bank.open(bank).scan("products").collect()
    assert len(scores) == 2 * len(logits) == 64
    expected = [log_softmax(logits[name].astype(np.float64)) for name in scores["prompt_id"]]
    classes = scores["option"].replace_strict({"next": 0, "other": 1}, return_dtype=pl.Int64)
    for found, row, which in zip(scores["logprob"], expected, classes, strict=True):
        assert abs(found - row[which]) <= LARGEST
