"""Trade-offs from banks and result files."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logitbank
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.stereotype import stereotype
from logitbank.analysis.families.tradeoff import tradeoff
from logitbank.analysis.frames import gender_answers
from logitbank.analysis.frames.match import match_models
from logitbank.analysis.frames.reader import ScanCache
from logitbank.errors import LogitbankError
from logitbank.store import Bank
from tests.analysis.test_harness import SAMPLES
from tests.analysis.test_harness import file as result_file
from tests.support.evaluation_banks import HITS, add_lambada, add_winobias, whole_bank

METRIC = "logitbank.analysis.families.lambada.metric"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_bank(tmp_path_factory.mktemp("banks") / "b.zarr")


def results(folder: Path, values: dict[int, float], *, model: str = "toy") -> list[Path]:
    """One result file a step, old layout."""
    folder.mkdir(exist_ok=True)
    return [
        result_file(
            folder / f"{model}-step{step}.json",
            results={"lambada_openai": {"acc": value, "acc_stderr": 0.01, "ppl": 10.0}},
            args=f"pretrained={model},revision=step{step}",
        )
        for step, value in values.items()
    ]


def test_a_trade_off_joins_the_curves_of_fairness_and_lambada(bank: Path) -> None:
    curves = tradeoff(bank).result.tradeoff
    gap = fairness(bank, bootstrap=0).result.gap.filter(pl.col("step").is_in(curves["step"]))
    accuracy = (
        logitbank.lambada(bank).tables["lambada"].filter(pl.col("step").is_in(curves["step"]))
    )
    for column, known in (
        ("delta", gap["delta"]), ("delta_low", gap["low"]),
        ("delta_high", gap["high"]), ("performance", accuracy["acc"]),
        ("performance_low", accuracy["acc_low"]), ("performance_high", accuracy["acc_high"]),
    ):  # fmt: skip
        assert curves[column].to_list() == pytest.approx(known.to_list()), column


def test_three_analyses_of_a_report_read_winobias_once(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with other numbers of resamples: these are drawn from what was read."""
    reads: list[int] = []
    cells = gender_answers.cells_of
    monkeypatch.setattr(
        gender_answers, "cells_of", lambda *a, **k: (reads.append(1), cells(*a, **k))[1]
    )
    cache = ScanCache()
    fair = fairness(bank, cache=cache, bootstrap=100).result
    able = tradeoff(bank, cache=cache).result
    stereotype(bank, cache=cache, bootstrap=20)
    assert reads == [1]
    answers = fair.jsd_parts.filter(pl.col("gold") == pl.col("option"), gold="female")
    parts = able.measures.filter(measure="jsd_p, female")
    assert parts["value"].to_list() == pytest.approx(answers["jsd_p"].to_list())


def test_a_bank_alone_gives_a_trade_off_on_the_same_items(bank: Path) -> None:
    study = tradeoff([bank], pair=(128, 16), max_accuracy_loss=10)
    result = study.result
    assert result.tradeoff["step"].to_list() == list(HITS)
    pair, choice = result.pairs.rows(named=True)
    assert pair["performance_change"] == pytest.approx(100 * (26 - 29) / 40)
    # Three of 40 words are lost and none is gained; Bonett and Price 2012 by hand.
    centre, squares = -3 / 42, (3 + 2) / 42
    half = 1.959964 * math.sqrt((squares - centre**2) / 42)
    assert pair["performance_low"] == pytest.approx(100 * (centre - half))
    assert pair["performance_high"] == pytest.approx(100 * (centre + half))
    assert pair["fairness_low"] > 50
    assert (choice["choice"], choice["before"], choice["after"]) == ("smallest gap", 32, 16)
    fairness, cost = study.findings[1:3]
    assert (fairness.value, fairness.form) == (pair["fairness_change"] / 100, "+.1%")
    assert (cost.value, cost.high) == (pytest.approx(-7.5), pair["performance_high"])


def test_what_a_report_has_read_is_not_read_again(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, cache = tradeoff([bank]), ScanCache()
    logitbank.lambada([bank], cache=cache)
    with monkeypatch.context() as patched:
        patched.setattr(f"{METRIC}._part", None)
        both = tradeoff([bank], cache=cache)
    assert both.result.tradeoff.equals(alone.result.tradeoff, null_equal=True)


def test_two_banks_may_have_one_side_each(tmp_path: Path) -> None:
    fair, able = tmp_path / "fair.zarr", tmp_path / "able.zarr"
    add_winobias(Bank.create(fair), steps=[8, 16], skew_from=16)
    add_lambada(Bank.create(able), {4: 1, 8: 2, 16: 4})
    found = tradeoff([fair, able]).result.tradeoff
    assert found.select("step", "performance").rows() == [(8, 2 / 40), (16, 4 / 40)]


def test_result_files_are_read_singly_and_from_folders(tmp_path: Path, bank: Path) -> None:
    paths = results(tmp_path / "r", {0: 0.1, 8: 0.2, 999: 0.3})
    for files in ([tmp_path / "r"], paths):
        study = tradeoff([bank], performance=list(map(str, files)))
        assert study.result.tradeoff["performance"].to_list() == [0.1, 0.2]


def test_the_only_task_of_files_is_read_and_the_model_may_be_named(
    tmp_path: Path, bank: Path
) -> None:
    """And a file without the metric of the others is refused."""
    steps = {0: 0.1, 8: 0.2}
    files = [
        result_file(
            tmp_path / f"m-step{step}.json",
            results={"piqa": {"acc,none": value, "acc_norm,none": 0.9, "alias": "piqa"}},
            args=f"pretrained=org/m,revision=step{step}",
        )
        for step, value in steps.items()
    ]
    study = tradeoff(bank, performance=[f"toy={tmp_path}"])
    assert study.result.settings["metric"] == "piqa accuracy"
    assert study.result.tradeoff.select("step", "performance").rows() == [*steps.items()]
    again = tradeoff(bank, performance=[f"toy={file}" for file in files]).result
    assert again.tradeoff.equals(study.result.tradeoff, null_equal=True)
    with pytest.raises(LogitbankError, match='"org/m".* --performance toy=FILE'):
        tradeoff(bank, performance=[str(tmp_path)])
    result_file(files[1], results={"piqa": {"acc_norm": 0.9}}, args="pretrained=m,revision=step8")
    with pytest.raises(LogitbankError, match=r"m-step8.json has no number for 'acc' \(1 such"):
        tradeoff(bank, performance=[f"toy={tmp_path}"])


@pytest.mark.parametrize(
    ("names", "match", "expected"),
    [
        (["pythia-v1.1-1b"], None, {"pythia-v1.1-1b": "org/pythia-1b"}),
        (["x/pythia-1b", "y/pythia-1b"], None, {}),
        (["x/pythia-1b"], {"plain": "x/pythia-1b"}, {"x/pythia-1b": "plain"}),
        (["pythia-1b", "plain"], None, {"plain": "plain", "pythia-1b": "org/pythia-1b"}),
        (["pythia-1b-v0", "pythia-v1.1-1b-deduped", "PYTHIA-1B"], None, {}),
    ],
)
def test_a_match_is_made_without_an_option_where_it_is_sure(
    names: list[str], match: dict[str, str] | None, expected: dict[str, str]
) -> None:
    known = ["org/pythia-1b", "plain"]
    assert match_models(known, names, match, sources=("a", "b")) == expected


def test_released_evaluations_of_pythia_are_read_as_they_are(tmp_path: Path) -> None:
    """Files name the model EleutherAI/pythia-v1.1-160m; its name on the hub is pythia-160m."""
    if not SAMPLES.is_dir():
        pytest.skip(f"needs result files in {SAMPLES}; set LOGITBANK_DATA")
    bank = tmp_path / "b.zarr"
    add_winobias(Bank.create(bank), steps=[83000, 143000], skew_from=143000, model="pythia-160m")
    found = tradeoff(bank, performance=[str(SAMPLES)], pair=(143000, 83000)).result
    released = [
        json.loads((SAMPLES / f"pythia-160m-step{step}.json").read_text())["results"]
        for step in (143000, 83000)
    ]
    last, early = (each["lambada_openai"]["acc"] for each in released)
    assert found.tradeoff["model"].unique().to_list() == ["pythia-160m"]
    assert found.pairs["performance_change"][0] == pytest.approx(100 * (early - last))
    big = f"pythia-160m={SAMPLES / 'pythia-6.9b-step83000.json'}"
    other = tradeoff(bank, performance=[big]).result.tradeoff
    assert other["step"].to_list() == [83000], "the only released step of this model"


def test_tables_and_charts_are_one_each(bank: Path) -> None:
    study = tradeoff([bank], max_accuracy_loss=10)
    assert set(study.tables) == {"measures", "tradeoff", "pairs"}
    assert list(study.charts) == ["tradeoff", "measures"]
    panels = study.charts["measures"].vconcat
    assert len(panels) == 3, "accuracy, JSD-P of each answer, and the gap"
    assert {each.figure for each in study.findings} <= {*study.charts}
    assert len(study.findings[0].text.split()) <= 15
    (choice,) = (each for each in study.findings if "Smallest gap within 10 points" in each.text)
    assert choice.value == abs(study.result.pairs["delta_after"].item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"performance": {"piqa": {"acc": 0.5}, "arc": {"acc": 0.5}}}, "several tasks.* arc, piqa"),
        ({"performance": {"piqa": {"f1": 0.5, "em": 0.5}}}, "piqa has no accuracy, but em, f1"),
        ({"performance": {"words": {"perplexity": 10}}}, "perplexity. is 10. .* a share"),
        ({"performance": True, "models": ["m"]}, "'m'.*toy"),
        ({"performance": ["none.json"]}, "none.json"),
        ({"performance": ["."]}, "json"),
        ({"pair": (8, 9)}, "Step 9"),
        ({"prompts": ["lambada"]}, "two"),
        ({"max_accuracy_loss": -1}, "-1"),
        ({"banks": ["nowhere"]}, "nowhere"),
    ],
)
def test_calls_that_do_not_fit_are_refused(
    tmp_path: Path, bank: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any],
    message: str,
) -> None:  # fmt: skip
    files = results(tmp_path / "r", {0: 0.1, 8: 0.2})
    if isinstance(values := options.get("performance"), dict):
        files = [result_file(tmp_path / "m-step0.json", results=values, args="pretrained=toy")]
        options = options | {"performance": True}
    if options.get("performance") is True:
        options = options | {"performance": [str(file) for file in files]}
    monkeypatch.chdir(bank.parent)
    with pytest.raises(LogitbankError, match=message) as error:
        tradeoff(**{"banks": [bank], **options})
    assert "\n" not in str(error.value)
