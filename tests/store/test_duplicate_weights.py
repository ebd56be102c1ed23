"""Checkpoints of equal weights are run once; the others are copied and say so."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from logitbank.store import Bank, CheckpointId, DepositSpec, Keep, verify
from logitbank.store.change.duplicate_weights import find_duplicate
from tests.support.fakes import TEXTS, FakeBackend, InProcess, go, questions, write_series
from tests.support.small_banks import block_data, new_bank, spec


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Steps 0 and 1 have the same weights, step 2 others."""
    fake = FakeBackend()
    load = fake.load

    def same(folder: Path, *, checkpoint: str) -> Any:
        name = "step0" if folder.name == "step1" else folder.name
        return load(Path(name), checkpoint=checkpoint)

    monkeypatch.setattr(fake, "load", same)
    monkeypatch.setattr(InProcess, "backend", fake)
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    return fake


@pytest.fixture
def series(tmp_path: Path) -> Path:
    return write_series(tmp_path / "tiny", "step0", "step1", "step2")


def made_from(bank: Bank) -> list[object]:
    return [deposit.spec.provenance.get("copied_from") for deposit in bank.deposits()]


@pytest.mark.parametrize("keep", ["full", "topk:3", "options"])
def test_equal_weights_of_one_run_are_scored_once(
    tmp_path: Path, series: Path, backend: FakeBackend, keep: str
) -> None:
    summary = go(tmp_path / "b", series, questions(*TEXTS), keep=Keep.parse(keep))
    assert summary.complete
    assert backend.scored == 2 * len(TEXTS)
    assert summary.rows == 3 * len(TEXTS)
    assert "tiny step 1 has the same weights as tiny step 0" in summary.notes
    assert "tiny step 1: copied from tiny step 0, not run again" in summary.notes
    bank = Bank.open(tmp_path / "b")
    assert made_from(bank) == [None, "tiny step 0", None]
    assert not verify(bank)
    first, second, _ = bank.deposits()
    assert second.sealed
    key = ["query", "kind", "token"]
    assert first.scores().sort(key).collect().equals(second.scores().sort(key).collect())
    if keep == "full":
        assert np.array_equal(first.stored_logprobs(), second.stored_logprobs())


def test_a_duplicate_of_an_earlier_run_is_copied(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    early = write_series(tmp_path / "early" / "tiny", "step0")
    go(tmp_path / "b", early, questions(*TEXTS))
    assert backend.scored == len(TEXTS)
    go(tmp_path / "b", series, questions(*TEXTS))
    assert backend.scored == 2 * len(TEXTS)
    assert made_from(Bank.open(tmp_path / "b")) == [None, "tiny step 0", None]


def test_a_damaged_duplicate_is_not_copied_but_run(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    early = write_series(tmp_path / "early" / "tiny", "step0")
    go(tmp_path / "b", early, questions(*TEXTS))
    shard = next((tmp_path / "b").rglob("logprobs/c/1/0"))
    data = bytearray(shard.read_bytes())
    data[9] ^= 1
    shard.write_bytes(data)
    summary = go(tmp_path / "b", series, questions(*TEXTS))
    assert backend.scored == 2 * len(TEXTS) + 1, "block 0, of two rows, is sound"
    (note,) = [note for note in summary.notes if "cannot be copied" in note]
    assert note.startswith("tiny step 1: run, because tiny step 0 cannot be copied: ")
    assert "logprobs/c/1/0 is not what was committed" in note
    _, copied, _ = Bank.open(tmp_path / "b").deposits()
    assert copied.sealed
    assert not list((tmp_path / "b").rglob(".staging*"))


def test_new_options_are_scored_and_not_copied_without(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    """The duplicate lists the options of its own time."""
    early = write_series(tmp_path / "early" / "tiny", "step0")
    go(tmp_path / "b", early, questions(*TEXTS))
    more = replace(questions(*TEXTS, options=(" male", " female", " doctor")), name="more")
    go(tmp_path / "b", series, more)
    assert backend.scored == 3 * len(TEXTS), "step 1 too"
    rows = Bank.open(tmp_path / "b").scan("more", steps=1).filter(option="doctor").collect()
    assert rows["exact"].to_list() == [True] * len(TEXTS)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """Step 0 has blocks 0 and 1 of three."""
    bank = new_bank(tmp_path / "b.zarr")
    with bank.begin(spec(0, compute_dtype="float32")) as writer:
        for block in (0, 1):
            writer.write(block, block_data(writer.layout, block))
    return bank


def test_a_duplicate_has_all_blocks_that_are_needed(bank: Bank) -> None:
    asked = spec(1, compute_dtype="float32")
    found = find_duplicate(bank, asked, {0, 1})
    assert found is not None
    assert found.checkpoint == CheckpointId("org/model", step=0)
    assert find_duplicate(bank, asked, {1, 2}) is None, "block 2 is missing"
    assert find_duplicate(bank, spec(0, compute_dtype="float32"), {0}) is None, "not of itself"


@pytest.mark.parametrize(
    "other",
    [
        spec(1, compute_dtype="float32", weights="cd" * 32),
        spec(1, compute_dtype="bfloat16"),
        spec(1, compute_dtype="float32", engine="other"),
        spec(1, compute_dtype="float32", engine_version="2"),
        spec(1, compute_dtype="float32", deterministic="batch-invariant kernels"),
        spec(1, compute_dtype="float32", trust_remote_code="yes"),
        spec(1, compute_dtype="float32", dtype="float16"),
        spec(1, compute_dtype="float32", block_rows=5),
        spec(1, compute_dtype="float32", keep=Keep("options")),
        replace(spec(1, compute_dtype="float32"), checkpoint=CheckpointId("org/other", step=1)),
    ],
)
def test_other_settings_are_not_duplicates(bank: Bank, other: DepositSpec) -> None:
    assert find_duplicate(bank, other, {0}) is None


def test_a_deposit_whose_scores_lack_an_option_is_not_a_duplicate(bank: Bank) -> None:
    table = bank.prompts("parity").collect()
    third = table.filter(option="no").with_columns(
        option=pl.lit("maybe"), token=pl.lit(5, pl.Int32), continuation=pl.lit(" maybe")
    )
    bank.add_prompts("more", pl.concat([table, third]))
    assert find_duplicate(bank, spec(1, compute_dtype="float32"), {0}) is None
