"""From banks and tables to results, sentences, files and the command line."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.comparison.compare import compare
from logitbank.analysis.families.fluctuation import fluctuation
from logitbank.errors import BankError, BankFormatError, LogitbankError, UsageError
from logitbank.store import CheckpointId
from tests.support.fluctuation_cases import (
    SENTENCES,
    STEPS,
    bank_logits,
    professions_bank,
    two_runs,
)


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return professions_bank(tmp_path / "b.zarr")


def test_a_bank_s_ratios_are_those_of_its_full_softmax(bank: Path) -> None:
    result = fluctuation([bank], plateaus=[10]).result
    values = np.stack(
        [bank_logits(CheckpointId("toy", "seed1", step, 1)).astype(float) for step in STEPS[1:]]
    )
    p = np.exp(values) / np.exp(values).sum(axis=2, keepdims=True)
    at = SENTENCES.index(("works as", "an actor"))
    r = p[:, at, 1] / p[:, at, 2]
    n = r * p[:, 9, 2] / p[:, 9, 1]
    (row,) = result.professions.filter(
        (pl.col("run") == "seed1")
        & (pl.col("verb") == "works as")
        & (pl.col("occupation") == "an actor")
    ).iter_rows(named=True)
    assert row["mean_r"] == pytest.approx(r.mean(), rel=1e-5)
    assert row["cv_n"] == pytest.approx(n.std() / n.mean(), rel=1e-5)
    assert row["certainty"] == pytest.approx(p[:, at, 1:3].sum(axis=1).mean(), rel=1e-5)
    assert result.checkpoints.filter(pl.col("step").is_null())["run"].unique().to_list() == ["main"]


def test_banks_and_tables_are_analysed_together_and_chosen_by_model(
    tmp_path: Path, bank: Path
) -> None:
    table = tmp_path / "bert.csv"
    two_runs().write_csv(table)
    both = fluctuation([bank, table])
    assert both.result.plateaus["model"].unique().sort().to_list() == ["bert", "toy"]
    assert both.result.plateaus.select("model", "plateau").unique().sort("model").rows() == [
        ("bert", 3),
        ("toy", 15),
    ]
    only = fluctuation([bank, table], models=["bert"])
    assert only.result.plateaus["model"].unique().to_list() == ["bert"]
    with pytest.raises(BankError, match="'x' is not in the banks and tables.*bert, toy"):
        fluctuation([bank, table], models=["x"])


def test_sources_that_are_none_are_named(tmp_path: Path, bank: Path) -> None:
    with pytest.raises(BankFormatError, match="nowhere"):
        fluctuation([tmp_path / "nowhere"])
    with pytest.raises(LogitbankError, match="'other'.*professions"):
        fluctuation([bank], prompts="other")
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="t.csv: .* no column pronoun, score, template"):
        fluctuation([table])
    with pytest.raises(UsageError, match="sizes.csv need frequencies: add --frequencies"):
        fluctuation([bank], corpus_sizes=Path("sizes.csv"))
    with pytest.raises(UsageError, match="t.csv: the frequencies lack occupation, case, year"):
        fluctuation([bank], frequencies=table)


def test_runs_are_compared_in_the_measures(bank: Path) -> None:
    found = compare(bank, match={"seed0": "seed1"}).result.metrics
    assert {*found["family"]} == {"fluctuation"}
    own = [at for at, (verb, job) in enumerate(SENTENCES) if verb == "is" and "MASK" not in job]
    for step in STEPS:
        sides = []
        for seed in (0, 1):
            values = bank_logits(CheckpointId("toy", f"seed{seed}", step, seed)).astype(float)
            p = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
            sides.append((p[own, 1] + p[own, 2]).mean())
        row = found.filter(step=step, metric="c", group="is").row(0, named=True)
        assert [row["a"], row["b"], row["items"]] == pytest.approx([*sides, 4], rel=1e-5)
        assert row["difference"] == pytest.approx(sides[1] - sides[0], abs=1e-5)
