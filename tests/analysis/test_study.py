"""From banks to tables, sentences and a report, on banks made from arrays."""

import importlib
import inspect
import pkgutil
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank.analysis
from logitbank.analysis.families.fairness.study import fairness
from logitbank.analysis.family import families
from logitbank.cli.screen.brief import OTHERS
from logitbank.errors import LogitbankError
from logitbank.store import Bank, CheckpointId
from tests.support.command import Call
from tests.support.evaluation_banks import VOCAB, winobias_bank

pytestmark = pytest.mark.numerical


def test_paths_may_be_texts(tmp_path: Path) -> None:
    bank = winobias_bank(tmp_path / "b.zarr", steps=2)
    study = fairness(str(bank), out=str(tmp_path / "out"), bootstrap=0)
    assert study.report == tmp_path / "out" / "report.html"
    assert study.report.is_file()
    for name in dir(logitbank.analysis):
        function = getattr(logitbank.analysis, name)
        if inspect.isfunction(function) and not {"models", "bank", "banks"}.isdisjoint(
            inspect.signature(function).parameters
        ):
            for parameter in inspect.signature(function).parameters.values():
                taken = str(parameter.annotation)
                assert "Path" not in taken or "str" in taken, f"{name}: {parameter}"


def test_a_study_finds_the_skew_and_writes_what_it_says(tmp_path: Path) -> None:
    bank = winobias_bank(tmp_path / "b.zarr", skew_from=4, steps=8)
    study = fairness([bank], out=tmp_path / "out", bootstrap=200, change=(5, 7))
    gap = study.result.gap["delta_scaled"].to_list()
    assert min(gap[4:]) > 0.2 > max(abs(delta) for delta in gap[:4])
    assert study.summary[0].startswith("toy main: From step 5 to step 7 the gap became 0.")
    assert "; a fairness change of " in study.summary[0]
    assert study.report == tmp_path / "out" / "report.html"
    page = study.report.read_text()
    assert "Fairness during training: toy on winobias" in page
    assert "Change point at step 4" in page
    written = pl.read_csv(tmp_path / "out" / "tables" / "gap.csv")
    assert written["step"].to_list() == list(range(8))
    names = {p.stem for p in (tmp_path / "out" / "figures").glob("*.png")}
    assert names
    assert names == {p.stem for p in (tmp_path / "out" / "figures").glob("*.svg")}


def test_two_banks_are_analysed_and_compared_together(tmp_path: Path) -> None:
    banks = [
        winobias_bank(tmp_path / f"{m}.zarr", model=m, skew_from=s) for m, s in (("a", 2), ("b", 4))
    ]
    study = fairness(banks, bootstrap=0, compare=("a", "b"))
    assert study.report is None
    assert study.result.checkpoints["model"].unique().sort().to_list() == ["a", "b"]
    only = fairness(banks, bootstrap=0, models=["b"])
    assert only.result.checkpoints["model"].unique().to_list() == ["b"]
    with pytest.raises(LogitbankError, match="model 'c' is not in the banks; there are a, b"):
        fairness(banks, bootstrap=0, models=["b", "c"])
    assert any("On neutral prompts, a and b differ" in line for line in study.summary)


def test_a_vocab_limit_that_means_nothing_is_refused(tmp_path: Path, call: Call) -> None:
    bank = Bank.open(winobias_bank(tmp_path / "b"))
    words = ("analyze", "fairness", bank.path, "--vocab-limit", "--bootstrap", 0)
    code, _, error = call(*words)
    assert code == 2
    assert "vocab_limit has nothing to leave out: no deposit of winobias has fewer" in error
    (queries,) = bank.query_sets()
    logits = np.random.default_rng(0).normal(size=(48, VOCAB))
    for entries, step in ((4, 4), (3, 5)):
        bank.deposit(
            logits.astype(np.float32), checkpoint=CheckpointId("toy", step=step),
            query_set=queries, vocab_entries=entries,
        )  # fmt: skip
        code, _, error = call(*words)
        assert code == (0 if step == 4 else 2)
    assert "name token 3, which is padding of toy step 5 (3 entries of 12 outputs)" in error
    assert error.count("\n") == 1


def test_every_result_that_is_no_family_s_says_which_of_its_own_tables_people_see() -> None:
    modules = pkgutil.walk_packages(logitbank.analysis.__path__, "logitbank.analysis.")
    results = {
        name: {field.name for field in fields(value)}
        for module in modules
        for name, value in vars(importlib.import_module(module.name)).items()
        if is_dataclass(value) and callable(getattr(value, "tables", None))
    }
    assert set(results) - {own.result.__name__ for own in families().values()} == set(OTHERS)
    for name, tables in OTHERS.items():
        assert set(tables) <= results[name], name
