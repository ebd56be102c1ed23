"""Several runs of a model: their mean, agreement and differences."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.comparison.compare import compare
from logitbank.analysis.families import families
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.stereoset import stereoset
from logitbank.analysis.frames.items import gather_items
from logitbank.analysis.results.runs import (
    RunScores,
    agreement_tables,
    run_difference,
    run_findings,
    run_scores,
)
from logitbank.analysis.stats.measure import Measure, ratio
from logitbank.store import Bank, CheckpointId
from tests.golden.banks import add_prompts, fill
from tests.support import gest_cases, stereoset_cases
from tests.support.made_once import made_once

pytestmark = pytest.mark.numerical

PLACE = {
    "model": "m", "variant": "", "step": 8, "prompts": "p", "family": "options",
    "score": "accuracy",
}  # fmt: skip
RUNS = ("seed0", "seed1", "seed2", "seed3")


@made_once
def bank_of_runs(path: Path) -> None:
    """WinoBias, LAMBADA, CrowS-Pairs and stereotype accuracy of four runs, at two steps."""
    bank = Bank.create(path)
    add_prompts(bank, steps=())
    for seed, run in enumerate(RUNS):
        for step in (0, 8):
            fill(bank, CheckpointId("toy", run, step, seed), keep="options", seed=seed)


HEADLINES = {
    "fairness": ("winobias", "gap", {}),
    "pairs": ("crows-pairs", "pairs", {"group": "all"}),
    "lambada": ("lambada", "lambada", {}),
    "options": ("winobias", "answers", {}),
}


@pytest.mark.parametrize("name", HEADLINES)
def test_the_mean_over_runs_is_that_of_the_family_s_table(tmp_path: Path, name: str) -> None:
    bank_of_runs(tmp_path / "bank")
    prompts, table, rows = HEADLINES[name]
    family = families()[name]
    study = family.analyze(tmp_path / "bank", prompts=prompts)
    (found,) = study.tables["runs"].to_dicts()
    of_runs = study.tables[table].filter(step=8, **rows)
    assert (found["model"], found["step"], found["runs"], found["missing"]) == ("toy", 8, 4, 0)
    assert found["value"] == pytest.approx(of_runs[found["score"]].mean(), abs=1e-12)
    assert found["sd"] == pytest.approx(of_runs[found["score"]].std(), abs=1e-12)
    if found["sd"]:
        assert found["low"] < found["value"] < found["high"]
    assert len(study.tables["agreement"]) == 6
    assert any("mean over runs of toy at step 8" in str(each) for each in study.findings)


def test_other_scores_than_the_headline_s_have_no_mean_over_runs(tmp_path: Path) -> None:
    study = stereoset(bank_of_terms(tmp_path / "terms"), score=["reference", "sum_logprob"])
    assert "runs" not in study.tables


def test_the_mean_over_runs_is_of_the_score_of_options_that_is_asked(tmp_path: Path) -> None:
    bank_of_runs(tmp_path / "bank")
    study = families()["options"].analyze(tmp_path / "bank", prompts="winobias", score="character")
    last = study.tables["answers"].filter(step=8)
    assert study.tables["runs"]["value"].item() == pytest.approx(last["accuracy"].mean())


MEAN = Measure(name="accuracy")


@pytest.mark.parametrize(
    ("name", "prompts", "text", "n"),
    [
        ("fairness", "winobias", "Gender gap Δ", "24 prompts (12 sentences)"),
        ("pairs", "crows-pairs", "Stereotype preferred", "12 pairs"),
    ],
)
def test_the_mean_over_runs_has_the_name_and_sample_of_the_measure(
    tmp_path: Path, name: str, prompts: str, text: str, n: str
) -> None:
    bank_of_runs(tmp_path / "bank")
    study = families()[name].analyze(tmp_path / "bank", prompts=prompts)
    (mean,) = [each for each in study.findings if "mean over runs" in each.text]
    assert (mean.text, mean.n) == (f"{text}, mean over runs of toy at step 8", f"4 runs × {n}")


def test_an_item_of_several_parts_is_missing_once_from_the_mean_over_runs() -> None:
    ratio_of = Measure(name="x", plus=("a", "b"), functions=ratio)
    rows = pl.DataFrame(
        {"run": np.repeat(["x", "y", "z"], 40), "item": [f"{i:02}" for i in range(20)] * 6,
         "part": np.tile(np.repeat(["a", "b"], 20), 3), "value": np.arange(1.0, 121)}
    )  # fmt: skip
    lacking = pl.when((pl.col("run") != "y") | (pl.col("item") != "03")).then("value")
    scores = runs_of(rows.with_columns(value=lacking), ratio_of)
    assert scores is not None
    assert (scores.missing, scores.items, scores.clusters) == (1, 19, 19)


def runs_of(rows: pl.DataFrame, measure: Measure = MEAN) -> RunScores | None:
    frame = rows.with_columns(model=pl.lit("m"), step=pl.lit(8, pl.Int64))
    return run_scores(gather_items([frame]), measure, PLACE)


def test_runs_without_an_item_of_a_side_in_common_have_no_mean() -> None:
    difference = Measure(name="x", plus=("a",), minus=("b",))
    rows = pl.DataFrame(
        {"run": np.repeat(["x", "y", "z"], 20), "item": [f"{i}" for i in range(20)] * 3,
         "part": ["a", "b"] * 30, "value": np.arange(60.0)}
    )  # fmt: skip
    b_is_missing = pl.when((pl.col("run") != "y") | (pl.col("part") != "b")).then("value")
    whole = runs_of(rows, difference)
    assert whole is not None
    assert runs_of(rows.with_columns(value=b_is_missing), difference) is None
    assert runs_of(rows.filter(part="a"), difference) is None
    assert runs_of(rows.filter(pl.col("run") != "z"), difference) is None
    own = (whole.axes["part"] == "a").to_numpy()
    half = whole._replace(axes=whole.axes.filter(part="a"), values=whole.values[:, own])
    assert run_difference(whole, half) is None


def test_runs_that_have_only_begun_a_step_are_measured_before_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bank_of_runs(tmp_path / name)
        bank = Bank.open(tmp_path / name)
        for deposit in [*bank.deposits()]:
            begun = replace(deposit.checkpoint, step=16)
            bank.begin(replace(deposit.spec, checkpoint=begun))
    study = families()["options"].analyze(tmp_path / "a", prompts="winobias")
    assert study.tables["runs"]["step"].to_list() == [8]
    rows = compare(tmp_path / "a", tmp_path / "b").tables["runs"]
    assert rows["step"].unique().to_list() == [8]
    assert set(rows["score"]) == {"score", "acc", "accuracy", "delta"}


def bank_of_terms(path: Path) -> Bank:
    bank = Bank.open(stereoset_cases.make_bank(path))
    for name, query_set in bank.query_sets().items():
        for seed in range(3):
            shape = (len(query_set), stereoset_cases.VOCAB)
            logits = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
            bank.deposit(logits, checkpoint=CheckpointId("toy", f"seed{seed}", 8), query_set=name)
    return bank


def test_the_mean_over_terms_of_stereoset_is_its_score(tmp_path: Path) -> None:
    study = stereoset(bank_of_terms(tmp_path / "bank"))
    scores = study.tables["scores"].filter(pl.col("run") != "main", step=8, domain="all")
    found = study.tables["runs"]
    assert found["prompts"].to_list() == ["stereoset-inter", "stereoset-intra"]
    for task, value in zip(("intersentence", "intrasentence"), found["value"], strict=True):
        assert value == pytest.approx(scores.filter(task=task)["ss"].mean())


def test_the_rate_of_gest_is_a_difference_of_means_of_stereotypes(tmp_path: Path) -> None:
    gest_cases.make_bank(tmp_path / "gest", seeds=(1, 2, 3))
    study = families()["gest"].analyze(tmp_path / "gest")
    rates = study.tables["rates"].filter(step=8, template="all")
    (found,) = study.tables["runs"].to_dicts()
    assert found["value"] == pytest.approx(rates["rate"].mean(), abs=1e-12)
    assert found["examples"] == 48


def test_compare_pairs_runs_by_name_or_takes_all(tmp_path: Path) -> None:
    """B has the scores of A's runs in another order, under the same names or others."""
    bank_of_runs(tmp_path / "a")
    for name, runs in (("same", RUNS), ("other", [f"new{i}" for i in range(4)])):
        bank = Bank.create(tmp_path / name)
        add_prompts(bank, steps=())
        for seed, run in enumerate(runs):
            fill(bank, CheckpointId("toy", run, 8, seed), keep="options", seed=5 + seed)
        found = compare(tmp_path / "a", tmp_path / name)
        rows = {row["score"]: row for row in found.tables["runs"].to_dicts()}
        assert [*rows] == ["score", "acc", "accuracy", "delta"]
        one, other = (
            fairness(path, bootstrap=0).tables["gap"].filter(step=8)["delta"].mean()
            for path in (tmp_path / "a", tmp_path / name)
        )
        row = rows["delta"]
        assert (row["a"], row["b"]) == (pytest.approx(one), pytest.approx(other))
        assert row["difference"] == pytest.approx(other - one)
        assert (row["paired"], row["runs_a"], row["runs_b"]) == (name == "same", 4, 4)
        assert row["low"] < row["difference"] < row["high"]
        (text,) = (str(each) for each in found.findings if "gap Δ of" in str(each))
        assert "Gender gap Δ of winobias, mean over runs of toy at step 8, B minus A" in text
        assert ("4 paired runs" if name == "same" else "4 and 4 runs") in text
        assert found.result.logits.is_empty() == (name == "other")


def test_items_of_both_sides_are_compared() -> None:
    values = np.random.default_rng(0).normal(size=(20, 6))

    def side(columns: slice, rows: slice) -> RunScores:
        own = values[rows, columns]
        names = [f"{i:02}" for i in range(20)][rows]
        frame = pl.DataFrame({"run": np.repeat(["x", "y", "z"], len(own)), "item": names * 3,
                              "value": own.T.ravel()})  # fmt: skip
        found = runs_of(frame)
        assert found is not None
        return found

    a, b = side(slice(0, 3), slice(0, 15)), side(slice(3, 6), slice(3, 20))
    row = run_difference(a, b)
    assert row is not None
    assert row["examples"] == 12
    assert row["difference"] == pytest.approx((values[3:15, 3:] - values[3:15, :3]).mean())
    assert run_difference(a, side(slice(3, 6), slice(15, 20))) is None


def test_the_outlying_run_is_named() -> None:
    """Five runs of one signal; what a sixth finds has less of it."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=300)
    runs = {f"seed{i}": signal + 0.5 * rng.normal(size=300) for i in range(5)}
    for outlier in (False, True):
        if outlier:
            runs["seed2"] = 0.3 * signal + rng.normal(size=300)
        frame = pl.DataFrame(
            {"run": np.repeat([*runs], 300), "item": [*range(300)] * 5,
             "value": np.concatenate([*runs.values()])}
        )  # fmt: skip
        scores = runs_of(frame)
        assert scores is not None
        tables = agreement_tables([scores])
        assert tables["agreement"]["r"][0] == pytest.approx(
            np.corrcoef(runs["seed0"], runs["seed1"])[0, 1]
        )
        texts = [str(each) for each in run_findings(families()["options"], tables)]
        assert ("Outlying run of m at step 8: seed2" in "".join(texts)) == outlier
        assert len(texts) == 2 + outlier
    equal = pl.DataFrame(
        {"run": np.repeat(["x", "y", "z"], 300), "item": [*range(300)] * 3,
         "value": np.tile(signal, 3)}
    )  # fmt: skip
    scores = runs_of(equal)
    assert scores is not None
    tables = agreement_tables([scores])
    assert len([*run_findings(families()["options"], tables)]) == 2


def test_runs_that_are_stages_are_not_averaged_and_seeds_of_a_stage_are(tmp_path: Path) -> None:
    """As in OLMo 2, whose second stage has three ingredients at the same step as the first."""
    bank = Bank.create(tmp_path / "olmo")
    add_prompts(bank, steps=())
    runs = ["stage1", "main", *(f"stage2-ingredient{number}" for number in (1, 2, 3))]
    for seed, run in enumerate(runs):
        fill(bank, CheckpointId("olmo", run, 8), keep="options", seed=seed)
    study = families()["options"].analyze(bank, prompts="winobias")
    (row,) = study.tables["runs"].to_dicts()
    of_stage = study.tables["answers"].filter(pl.col("run").str.starts_with("stage2"))
    assert (row["variant"], row["runs"]) == ("stage2", 3)
    assert row["value"] == pytest.approx(of_stage["accuracy"].mean())
    assert any("mean over runs of olmo stage2 at step 8" in each for each in study.summary)


@pytest.mark.parametrize(
    ("runs", "averaged"),
    [
        ([("main", None), ("ext", None), ("decay", None)], False),
        ([("a", 1), ("b", 2), ("c", 3)], True),
        ([("stage1", 1), ("stage2", 1), ("stage3", 1)], False),
    ],
)
def test_runs_are_seeds_by_name_or_by_their_declared_seed(
    tmp_path: Path, runs: list[tuple[str, int | None]], averaged: bool
) -> None:
    bank = Bank.create(tmp_path / "bank")
    add_prompts(bank, steps=())
    for at, (run, seed) in enumerate(runs):
        fill(bank, CheckpointId("toy", run, 8, seed), keep="options", seed=at)
    study = families()["options"].analyze(bank, prompts="winobias")
    assert ("runs" in study.tables) == averaged
    note = "The 3 runs of toy are not averaged."
    assert any(each.startswith(note) for each in study.missing) != averaged
