"""Each script in `studies`, from a dry run to the page, on tiny models with real vocabularies.

Tolerances are ten times what one machine had, since another one rounds otherwise.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.frames.expressions import HALF_LN2
from logitbank.engine.prompts.registry import prompt_names
from tests.support import plain_studies, stand_ins
from tests.support.docs_run import parse
from tests.support.paths import PUBLIC, ROOT
from tests.support.preloaded import COMMAND, COMMANDS, Preloaded

pytestmark = pytest.mark.whole
CLIENT = f"""#!{sys.executable} -IS
import os, pickle, socket, struct, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.environ["LOGITBANK_TEST_COMMANDS"])
    request = [{COMMAND!r}, *sys.argv[1:]], dict(os.environ), [], os.getcwd()
    socket.send_fds(server, [pickle.dumps(request)], [0, 1, 2])
    server.recv(4)  # the process
    sys.exit(*struct.unpack("i", server.recv(4)))
"""
"""The command, whose processes and workers come from the servers of `quick_commands`."""


@pytest.fixture
def quick_commands(
    quick_workers: None, preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGITBANK_TEST_COMMANDS", preloaded.address(COMMANDS))


@pytest.fixture(autouse=True)
def same_weights_each_time() -> None:
    import torch

    torch.manual_seed(0)


class Study:
    """A script and its folder of results."""

    def __init__(self, script: str, folder: Path, command: str = "", **variables: str) -> None:
        """`command` is the text of another `logitbank`."""
        if not PUBLIC.is_dir():
            pytest.skip(f"{PUBLIC} is not there")
        self.command = ["bash", str(ROOT / "studies" / script), "--engine", "transformers"]
        self.out = folder / "out"
        folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if command or "LOGITBANK_TEST_COMMANDS" in os.environ:
            path = folder / "bin" / "logitbank"
            path.parent.mkdir(parents=True)
            path.write_text(command or CLIENT)
            path.chmod(0o755)
            folders.insert(0, str(path.parent))
        own = {
            "PATH": os.pathsep.join(folders),
            "LOGITBANK_DATA": str(PUBLIC),
            "OUT": str(self.out),
        }
        self.environment = os.environ | own | variables

    def run(self, *more: str) -> str:
        command = [*self.command, *more]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def table(self, name: str) -> pl.DataFrame:
        folder, table = name.split("/")
        return pl.read_csv(self.out / folder / "tables" / f"{table}.csv", infer_schema_length=None)

    def scan(self, prompts: str) -> pl.LazyFrame:
        return logitbank.open(self.out / "bank.zarr").scan(prompts)

    def plan(self) -> None:
        assert "Dry run: nothing was written." in self.run("--dry-run")
        assert not self.out.exists()

    def from_dry_run_to_page(self) -> None:
        """The tables and charts are there that the page of validation names."""
        self.plan()
        self.run()
        assert (self.out / "page.html").stat().st_size > 100_000
        own = 0
        for row in (ROOT / "docs" / "validation.md").read_text().splitlines():
            for folder, table in re.findall(r"`(\w+)/(\w+)`", row):
                if (self.out / folder).is_dir():
                    own += 1
                    assert (self.out / folder / "tables" / f"{table}.csv").is_file(), row
                    for chart in re.findall(r"chart `(\w+)`", row):
                        assert (self.out / folder / "charts" / f"{chart}.pdf").is_file(), row
        assert own > 3


def fairness_dynamics(
    folder: Path, steps: tuple[int, ...], *, sizes: tuple[str, ...] = ("160m", "6.9b")
) -> tuple[Study, list[Path]]:
    suites = [stand_ins.pythia(folder / f"pythia-{size}", steps) for size in sizes]
    return Study("fairness-dynamics.sh", folder, SUITE=" ".join(map(str, suites))), suites


def stereoset_debias(folder: Path) -> tuple[Study, Path]:
    swiss = stand_ins.xmod(folder / "swissbert", ("de_CH", "fr_CH"))
    english = stand_ins.xmod(folder / "xmod-base", ("de_DE", "en_XX"))
    baseline = stand_ins.bert(folder / "bert")
    models = {"SUITE": str(swiss), "ENGLISH": str(english), "BASELINE": str(baseline)}
    return Study("stereoset-debias.sh", folder, **models), baseline


@pytest.mark.usefixtures("quick_commands")
def test_a_study_that_takes_minutes_is_planned(tmp_path: Path) -> None:
    fairness_dynamics(tmp_path, (0,), sizes=("160m",))[0].plan()


@pytest.mark.parametrize("script", ["fairness-dynamics.sh", "stereoset-debias.sh"])
def test_all_commands_of_studies_that_take_minutes_are_valid(script: str, tmp_path: Path) -> None:
    """A script whose `logitbank` only writes its arguments down. `make long` runs them."""
    study = Study(script, tmp_path, command='#!/bin/bash\necho "${*@Q}" >> "$OUT/calls"\n')
    study.out.mkdir()
    study.run()
    calls = [shlex.split(line) for line in (study.out / "calls").read_text().splitlines()]
    assert [call[0] for call in calls if call[0] in ("extract", "report")][-1] == "report"
    for call in calls:
        parse(call)
        names = [spec for option, spec in pairwise(call) if option == "--prompts"]
        if call[0] == "extract":
            assert {spec.partition(":")[0] for spec in names} <= {*prompt_names()}, call


@pytest.mark.long
def test_fairness_dynamics(tmp_path: Path) -> None:
    steps = (0, 83_000, 143_000)
    study, suites = fairness_dynamics(tmp_path, steps)
    study.from_dry_run_to_page()

    last = {"model": "pythia-160m", "step": 143_000}
    prompts = study.scan("winobias").filter(**last, option="male").sort("prompt_id", "order_seed")
    asked = prompts.select("prompt_id", "order_seed", "text", "answer").collect()
    expected = plain_studies.fairness(
        suites[0] / "step143000", asked.filter(pl.col("answer") != "not specified").rows()
    )
    ranks, accuracy, gap, tests = (
        study.table(f"fairness/{name}").filter(**last)
        for name in ("average_rank", "accuracy", "gap", "tests")
    )
    for option in ("male", "female"):
        rank = ranks.filter(gold=option)["average_rank"].item()
        assert rank == pytest.approx(expected[f"average_rank {option}"], rel=1e-5)
        share = accuracy.filter(gold=option)["accuracy"].item()
        assert share == pytest.approx(expected[f"accuracy {option}"], abs=1e-3)
    assert HALF_LN2 * gap["delta"].item() == pytest.approx(expected["delta"], abs=1e-6)
    published = tests.filter(origin="published", measure="jsd_p")
    assert published["statistic"].item() == pytest.approx(expected["u"], rel=1e-4)
    assert published["p"].item() == pytest.approx(expected["p"], rel=1e-2)
    assert set(study.table("stereotype/stereotype_accuracy")["step"]) == {*steps}
    assert set(study.table("tradeoff/pairs")["model"]) == {"pythia-160m", "pythia-6.9b"}

    # A step that comes later is run alone.
    stand_ins.pythia(suites[0], (13_000,))
    assert "results of 1 checkpoint" in " ".join(study.run().split())
    assert {*study.table("fairness/average_rank")["step"]} == {*steps, 13_000}


@pytest.mark.usefixtures("quick_commands")
def test_bias_fluctuation(tmp_path: Path) -> None:
    steps = (0, 500_000, 760_000, 1_000_000)
    berts = stand_ins.multiberts(tmp_path / "multiberts", (0, 1), steps)
    roberta = stand_ins.roberta(tmp_path / "roberta-base", steps[2:])
    names = (PUBLIC / "professions" / "923-professions.txt").read_text().splitlines()
    frequencies = pl.DataFrame({"occupation": names, "case": "any", "total": range(len(names))})
    frequencies.write_csv(tmp_path / "frequencies.csv")
    study = Study(
        "bias-fluctuation.sh",
        tmp_path,
        SUITE=f"{berts} {roberta}",
        PLATEAUS="500000 760000",
        FREQUENCIES=str(tmp_path / "frequencies.csv"),
    )
    study.from_dry_run_to_page()

    asked = study.scan("professions").filter(model="multiberts", run="seed0", step=0, option="he")
    prompts = asked.filter(verb="is").select("occupation", "prior", "text").collect()
    means = []
    for seed in (0, 1):
        folders = [berts / f"seed{seed}" / f"step{step}" for step in steps[1:]]
        he, she = np.stack(
            [
                plain_studies.pronouns(f, prompts["text"].to_list(), stand_ins.PRONOUNS)
                for f in folders
            ]
        ).T  # (prompts, checkpoints) each
        own = ~prompts["prior"].to_numpy()
        ratio = he / she
        n = (ratio / ratio[~own])[own]
        r, certainty = ratio[own], (he + she)[own].mean(axis=1)
        means.append(r.mean(axis=1))
        expected = pl.DataFrame(
            {
                "occupation": prompts["occupation"].filter(own),
                "want_r": r.std(axis=1) / r.mean(axis=1),
                "want_n": n.std(axis=1) / n.mean(axis=1),
                "want_c": certainty,
            }
        )
        key = {"model": "multiberts", "run": f"seed{seed}", "verb": "is", "plateau": 500_000}
        found = study.table("fluctuation/professions").filter(**key).join(expected, on="occupation")
        assert len(found) == 923
        for name, want in (("cv_r", "want_r"), ("cv_n", "want_n"), ("certainty", "want_c")):
            np.testing.assert_allclose(found[name], found[want], rtol=1e-4)
        pair = {"x": "certainty", "y": "cv_r"}
        correlation = study.table("fluctuation/correlations").filter(**key, **pair)["r"].item()
        want = np.corrcoef(certainty, expected["want_r"])[0, 1]
        assert correlation == pytest.approx(want, abs=1e-5)
    pairs = study.table("fluctuation/run_pairs").filter(
        verb="is", plateau=500_000, measure="mean_r"
    )
    assert pairs["r"].item() == pytest.approx(np.corrcoef(*means)[0, 1], abs=1e-5)


@pytest.mark.long
def test_stereoset_debias(tmp_path: Path) -> None:
    study, baseline = stereoset_debias(tmp_path)
    study.from_dry_run_to_page()

    scores = study.table("stereoset/scores").filter(model="bert", language="en", domain="all")
    for task in ("intrasentence", "intersentence"):
        found = scores.filter(task=task).select("lms", "ss", "icat").row(0)
        # A comparison of two candidates whose scores are equal to rounding moves ss by 0.05.
        assert found == pytest.approx(plain_studies.stereoset(baseline, task), abs=0.2)

    rows = study.table("comparison/comparison").filter(condition="plain")
    rows = rows.with_columns(pl.col("language").fill_null("both"))
    for language, examples in (("en", 2_106), ("de", 2_103)):
        own = rows.filter(language=language, model="swissbert")
        assert sorted(own["filter"]) == ["none", *["trained"] * 2, *["untrained"] * 2]
        assert set(own["examples"]) == {examples}
        assert rows.filter(language=language, model="bert", filter="none").height == 1
    assert rows.filter(language="both")["icat"].to_list() == [100, 50]


@pytest.mark.usefixtures("quick_commands")
def test_natural_ungrokking(tmp_path: Path) -> None:
    """A rule that is learned by step 30 and lost by step 60 has its peak, fall and crossing."""
    file = tmp_path / "names.jsonl"
    script = ROOT / "studies" / "natural_ungrokking.py"
    subprocess.run([sys.executable, script, "prompts", file], check=True)
    prompts = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(prompts) == 40
    suite = stand_ins.learns_and_unlearns(
        tmp_path / "toy", [(each["text"], each["answer"]) for each in prompts]
    )
    study = Study("natural-ungrokking.sh", tmp_path, SUITE=str(suite))
    study.plan()
    assert "toy main: accuracy 1.00 at step" in study.run()
    (row,) = study.table("rule/course").iter_rows(named=True)
    scores = study.scan("names").filter(pl.col("named") == "girl").collect()
    margin = pl.col("logprob").sort_by("is_answer", descending=True).diff(-1).first()
    by_step = scores.group_by("step", "prompt_id").agg(margin=margin).group_by("step")
    by_step = by_step.agg(pl.col("margin").mean(), accuracy=(pl.col("margin") > 0).mean())
    accuracy = dict(by_step.select("step", "accuracy").iter_rows())
    margins = dict(by_step.select("step", "margin").iter_rows())
    assert accuracy[row["peak_step"]] == row["peak"] == 1
    assert row["rise"] <= row["peak_step"] <= 30 < row["fall"] <= 60
    assert margins[row["crossing"]] < 0 < margins[row["crossing"] - 10]
    assert row["crossing_from"] <= row["crossing"] <= row["crossing_to"]
    assert row["depth"] == 1 - min(accuracy[step] for step in accuracy if step >= row["peak_step"])
    assert (row["prompts"], row["names"]) == (20, 10)
