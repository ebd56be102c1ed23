"""Each script in `studies`, from a dry run to the page, on tiny models with real vocabularies."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

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

    def charts(self, folder: str) -> set[str]:
        return {path.stem for path in (self.out / folder / "charts").glob("*.pdf")}

    def from_dry_run_to_page(self) -> None:
        assert "Dry run: nothing was written." in self.run("--dry-run")
        assert not self.out.exists()
        self.run()
        assert (self.out / "page.html").stat().st_size > 100_000
        for text in self.out.glob("*/charts/*.txt"):
            assert text.read_text().strip()


def test_fairness_dynamics(tmp_path: Path) -> None:
    steps = (0, 512, 83_000, 143_000)
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
    assert "20,001 rows of 1 checkpoint" in again
    assert {*study.table("fairness/average_rank")["step"]} == {*steps, 13_000}
