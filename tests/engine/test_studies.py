"""Each script in `studies`, from a dry run to the page, on tiny models with real vocabularies."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from tests.support import stand_ins
from tests.support.paths import PUBLIC, ROOT

pytestmark = pytest.mark.whole


class Study:
    """A script and its folder of results."""

    def __init__(self, script: str, folder: Path, **variables: str) -> None:
        if not PUBLIC.is_dir():
            pytest.skip(f"{PUBLIC} is not there")
        self.command = ["bash", str(ROOT / "studies" / script), "--engine", "transformers"]
        self.out = folder / "out"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "LOGITBANK_DATA": str(PUBLIC), "OUT": str(self.out)}
        self.environment = os.environ | own | variables

    def run(self, *more: str) -> str:
        command = [*self.command, *more]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def table(self, name: str) -> pl.DataFrame:
        folder, table = name.split("/")
        return pl.read_csv(self.out / folder / "tables" / f"{table}.csv", infer_schema_length=None)

    def from_dry_run_to_page(self) -> None:
        assert "Dry run: nothing was written." in self.run("--dry-run")
        assert not self.out.exists()
        self.run()
        assert (self.out / "page.html").stat().st_size > 100_000
        for text in self.out.glob("*/charts/*.txt"):
            assert text.read_text().strip()


def test_fairness_dynamics(tmp_path: Path) -> None:
    steps = (0, 83_000, 143_000)
    suites = [stand_ins.pythia(tmp_path / f"pythia-{size}", steps) for size in ("160m", "6.9b")]
    study = Study("fairness-dynamics.sh", tmp_path, SUITE=" ".join(map(str, suites)))
    study.from_dry_run_to_page()

    ranks = study.table("fairness/average_rank")
    assert set(ranks["model"]) == {"pythia-160m", "pythia-6.9b"}
    assert set(ranks["step"]) == {*steps}
    assert set(study.table("stereotype/stereotype_accuracy")["step"]) == {*steps}
    assert set(study.table("tradeoff/tradeoff")["model"]) == set(ranks["model"])

    # A step that comes later is run alone.
    stand_ins.pythia(suites[0], (13_000,))
    again = study.run()
    assert "20,001 results of 1 checkpoint" in again
    assert {*study.table("fairness/average_rank")["step"]} == {*steps, 13_000}


def test_bias_fluctuation(tmp_path: Path) -> None:
    steps = (0, 500_000, 760_000, 1_000_000)
    berts = stand_ins.multiberts(tmp_path / "multiberts", (0, 1), steps)
    roberta = stand_ins.roberta(tmp_path / "roberta-base", steps)
    study = Study(
        "bias-fluctuation.sh", tmp_path, SUITE=f"{berts} {roberta}", PLATEAUS="500000 760000"
    )
    study.from_dry_run_to_page()

    found = study.table("fluctuation/professions").filter(
        model="roberta-base", verb="is", occupation="a nurse"
    )
    assert found["plateau"].to_list() == [500_000, 760_000]
    bank = logitbank.open(study.out / "bank.zarr")
    scores = bank.scan("professions").filter(model="roberta-base", occupation="a nurse", verb="is")
    by_option = scores.collect().sort("step").partition_by("option", as_dict=True)
    he, she = (np.exp(by_option[pronoun,]["logprob"].to_numpy()) for pronoun in ("he", "she"))
    for cv, first in zip(found["cv_r"], (1, 2), strict=True):
        ratio = he[first:] / she[first:]
        assert cv == pytest.approx(np.std(ratio) / np.mean(ratio), rel=1e-6)
    assert len(study.table("fluctuation/run_pairs")) > 0


def test_stereoset_debias(tmp_path: Path) -> None:
    swiss = stand_ins.xmod(tmp_path / "swissbert", ("de_CH", "fr_CH"))
    english = stand_ins.xmod(tmp_path / "xmod-base", ("de_DE", "en_XX"))
    baseline = stand_ins.bert(tmp_path / "bert")
    study = Study(
        "stereoset-debias.sh",
        tmp_path,
        SUITE=str(swiss),
        ENGLISH=str(english),
        BASELINE=str(baseline),
    )
    study.from_dry_run_to_page()

    rows = study.table("comparison/comparison").filter(condition="plain")
    rows = rows.with_columns(pl.col("language").fill_null("both"))
    for language, examples in (("en", 2_106), ("de", 2_103)):
        swiss_rows = rows.filter(language=language, model="swissbert")
        assert swiss_rows["filter"].to_list().count("trained") == 2
        assert swiss_rows["filter"].to_list().count("untrained") == 2
        assert set(swiss_rows["examples"]) == {examples}
        assert rows.filter(language=language, model="bert", filter="none").height == 1
    assert rows.filter(language="both")["icat"].to_list() == [100, 50]
    tasks = study.table("stereoset/scores").filter(model="bert")["task"]
    assert {"intrasentence", "intersentence", "both"} <= {*tasks}
