"""Trade-offs from banks, result files and tables, on the command line and in files."""

import csv
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from logitbank.analysis.families.fairness.metric import fairness_metric
from logitbank.analysis.families.lambada import lambada
from logitbank.analysis.families.lambada.metric import lambada_metric
from logitbank.analysis.families.tradeoff import gaps, tradeoff
from logitbank.analysis.families.tradeoff.metric import (
    RESAMPLED,
    lambada_curve,
    performance_files,
)
from logitbank.analysis.frames.scan_cache import ScanCache
from logitbank.analysis.results.curve import read_curve
from logitbank.errors import LogitbankError, UsageError
from logitbank.store import Bank
from tests.analysis.test_harness import file as result_file
from tests.support.command import Call
from tests.support.evaluation_banks import HITS, add_lambada, add_winobias, whole_bank
from tests.support.paths import PUBLIC as DATA

METRIC = "logitbank.analysis.families.tradeoff.metric"
PUBLISHED = DATA / "pythia" / "lambada-openai-by-step.csv"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_bank(tmp_path_factory.mktemp("banks") / "b.zarr")


@pytest.fixture
def analyze(call: Call) -> Call:
    """Run `logitbank analyze tradeoff`."""
    return partial(call, "analyze", "tradeoff")


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


def test_the_gap_of_a_bank_is_that_of_fairness(bank: Path) -> None:
    opened = Bank.open(bank)
    found = gaps()["fairness"].curve([opened], "winobias", None, 200, ScanCache())
    known = fairness_metric(opened.scan("winobias"), bootstrap=200).gap
    assert found["step"].to_list() == known["step"].to_list()
    assert found["value"].to_list() == pytest.approx(known["delta_scaled"].to_list())
    n = known["sentences"][0]
    tail = float(stats.norm.cdf(-np.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)))
    low = found["draws"].list.eval(pl.element().quantile(tail, "linear")).list.first()
    assert low.to_list() == pytest.approx(known["low_scaled"].to_list())


@pytest.mark.parametrize("metric", ["acc", "perplexity", "ppl"])
def test_lambada_of_a_bank_has_draws_around_its_value(bank: Path, metric: str) -> None:
    banks = [Bank.open(bank)]
    found = lambada_curve(banks, "lambada", metric=metric, resamples=500)
    known = lambada_metric(banks[0].scan("lambada")).lambada
    name = "acc" if metric == "acc" else "perplexity"
    assert found["value"].to_list() == pytest.approx(known[name].to_list())
    for value, draws, error in zip(
        found["value"], found["draws"], known[f"{name}_stderr"], strict=True
    ):
        # The error of a perplexity is that of its logarithm, times the perplexity.
        values = draws.to_numpy() if metric == "acc" else value * np.log(draws.to_numpy())
        assert float(np.std(values)) == pytest.approx(error, rel=0.15, abs=1e-9)
    with pytest.raises(UsageError, match="Unknown metric 'f1': LAMBADA of a bank has acc and perp"):
        lambada_curve(banks, "lambada", metric="f1")


def test_a_bank_alone_gives_a_trade_off_on_the_same_items(bank: Path) -> None:
    study = tradeoff([bank], pair=(128, 16), max_accuracy_loss=10, bootstrap=300)
    result = study.result
    assert result.tradeoff["step"].to_list() == list(HITS)
    assert result.settings["performance_interval"] == result.settings["gap_interval"] == RESAMPLED
    (pair,) = result.pairs.rows(named=True)
    assert pair["performance_change"] == pytest.approx(100 * (26 - 29) / 40)
    # Words 26, 27 and 28 differ between the two; a resample may miss them, and never turns them.
    assert pair["performance_high"] <= 0
    assert pair["fairness_low"] > 50
    (choice,) = result.choices.rows(named=True)
    assert (choice["best_step"], choice["step"]) == (32, 16)
    fairness, cost = study.findings[1:3]
    assert (fairness.value, fairness.form) == (pair["fairness_change"] / 100, "+.1%")
    assert (cost.value, cost.high) == (pytest.approx(-7.5), pair["performance_high"])


def test_what_a_report_has_read_is_not_read_again(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, cache = tradeoff([bank], bootstrap=50), ScanCache()
    lambada([bank], cache=cache)
    with monkeypatch.context() as patched:
        patched.setattr(f"{METRIC}.examples_in_turn", None)
        both = tradeoff([bank], bootstrap=50, cache=cache)
    assert both.result.tradeoff.equals(alone.result.tradeoff, null_equal=True)


@pytest.mark.parametrize("gap", sorted({*gaps()} - {"fairness"}))
def test_other_gaps_of_a_bank(bank: Path, gap: str) -> None:
    table = tradeoff([bank], gap=gap, bootstrap=50).result.tradeoff
    assert table["gap"].is_between(0, 0.5).all()
    # Where all pairs agree there is no error, and so no interval.
    assert (table["gap_low"].is_nan() == (table["gap"] == 0.5)).all()
    assert table["step"].to_list() == (list(HITS) if gap == "sa_gender" else [0, 8])


def test_two_banks_may_have_one_side_each(tmp_path: Path) -> None:
    fair, able = tmp_path / "fair.zarr", tmp_path / "able.zarr"
    add_winobias(Bank.create(fair), steps=[8, 16], skew_from=16)
    add_lambada(Bank.create(able), {4: 1, 8: 2, 16: 4})
    found = tradeoff([fair, able], bootstrap=0).result.tradeoff
    assert found.select("step", "performance").rows() == [(8, 2 / 40), (16, 4 / 40)]


def test_result_files_are_read_singly_from_folders_and_by_pattern(
    tmp_path: Path, bank: Path
) -> None:
    paths = results(tmp_path / "r", {0: 0.1, 8: 0.2, 999: 0.3})
    for given in ([tmp_path / "r"], [tmp_path / "r" / "*.json"], paths):
        study = tradeoff([bank], performance=given, bootstrap=50)
        assert study.result.tradeoff["performance"].to_list() == [0.1, 0.2]
    # As a shell expands `--performance r/*.json`: one for the option, the rest as arguments.
    study = tradeoff([*paths[1:], bank], performance=paths[:1], bootstrap=50)
    assert study.result.tradeoff["performance"].to_list() == [0.1, 0.2]
    with pytest.raises(UsageError, match=r"No file matches .*x\*.json: check the pattern"):
        tradeoff([bank], performance=[tmp_path / "x*.json"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"The folder .*empty has no .json file"):
        tradeoff([bank], performance=[tmp_path / "empty"])


def gap_table(path: Path, rows: list[tuple[str, int, float]], **more: object) -> Path:
    frame = pl.DataFrame(rows, schema=["model", "step", "value"], orient="row")
    frame.with_columns(**{k: pl.lit(v) for k, v in more.items()}).write_csv(path)
    return path


def published() -> Path:
    if not PUBLISHED.is_file():
        pytest.skip(f"needs {PUBLISHED}; set LOGITBANK_DATA")
    return PUBLISHED


def test_the_published_table_is_a_performance_curve() -> None:
    where = {"suite": "pythia-v1", "shots": "zero-shot", "model": "pythia-6.9b"}
    curve = performance_files([published()], where=where)
    with PUBLISHED.open(encoding="utf-8") as lines:
        known = {
            int(row["step"]): row
            for row in csv.DictReader(lines)
            if all(row[key] == value for key, value in where.items())
        }
    assert len(curve) == len(known) == 27
    for row in curve.iter_rows(named=True):
        assert row["value"] == float(known[row["step"]]["acc"])
        assert row["stderr"] == float(known[row["step"]]["acc_stderr"])
    ppl = performance_files([PUBLISHED], metric="perplexity", where=where)
    assert ppl.filter(step=143000)["value"][0] == float(known[143000]["ppl"])


def test_published_result_files_and_table_give_the_same_curve() -> None:
    samples = sorted((DATA / "pythia" / "lm-evaluation-harness-samples").glob("*160m*.json"))
    if not samples:
        pytest.skip("needs the sample result files; set LOGITBANK_DATA")
    files = performance_files(samples)
    where = {"suite": "pythia-v1", "shots": "zero-shot", "model": "pythia-160m"}
    table = performance_files([published()], where=where)
    both = files.join(table, on="step")
    assert both["step"].sort().to_list() == [0, 512, 13000, 83000, 143000]
    assert both["value"].to_list() == both["value_right"].to_list()
    assert both["stderr"].to_list() == both["stderr_right"].to_list()


def test_early_stopping_with_published_accuracy(tmp_path: Path) -> None:
    """Gaps that round to the published 0.73 and 0.05 against Pythia-6.9b's own accuracy."""
    rows = [("pythia-6.9b", 143000, 0.727), ("pythia-6.9b", 83000, 0.0545)]
    table = gap_table(tmp_path / "gap.csv", rows)
    where = {"suite": "pythia-v1", "shots": "zero-shot"}
    study = tradeoff(
        [], performance=[published()], where=where, fairness_table=table, pair=(143000, 83000)
    )
    with PUBLISHED.open(encoding="utf-8") as lines:
        acc = {
            int(row["step"]): float(row["acc"])
            for row in csv.DictReader(lines)
            if (row["suite"], row["shots"], row["model"]) == (*where.values(), "pythia-6.9b")
        }
    lost = 100 * (acc[83000] - acc[143000])
    assert study.result.pairs["performance_change"][0] == pytest.approx(lost)
    assert lost < 0
    fairness, cost = study.findings[1:3]
    assert (fairness.number, cost.value) == ("+92.5%", pytest.approx(lost))
    assert cost.low is not None
    assert cost.low < lost


def test_columns_of_a_fairness_run_are_a_gap_with_its_interval(tmp_path: Path, bank: Path) -> None:
    gap = fairness_metric(Bank.open(bank).scan("winobias"), bootstrap=200).gap
    gap.write_csv(tmp_path / "gap.csv")
    curve = read_curve(tmp_path / "gap.csv", "delta_scaled")
    assert curve["value"].to_list() == gap["delta_scaled"].to_list()
    width = (gap["high_scaled"] - gap["low_scaled"]) / (2 * 1.959964)
    assert curve["stderr"].to_list() == pytest.approx(width.to_list(), rel=1e-5)
    study = tradeoff([bank], fairness_table=tmp_path / "gap.csv", gap="delta_scaled")
    assert study.result.settings["gap"] == "delta_scaled"


def refused(message: str, sources: list[Path], **options: object) -> None:
    with pytest.raises(LogitbankError, match=message) as error:
        tradeoff(sources, **options)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_bad_input_is_named(tmp_path: Path, bank: Path) -> None:
    files = results(tmp_path / "r", {0: 0.1, 8: 0.2})
    refused(
        r"Unknown metric 'f1': lambada_openai has acc, perplexity in .*step0.json and 1 more",
        [bank], performance=files, metric="f1",
    )  # fmt: skip
    (tmp_path / "lacking").mkdir()
    lacking = result_file(
        tmp_path / "lacking" / "toy-step16.json",
        results={"lambada_openai": {"acc": "N/A", "ppl": 9.0}}, args="pretrained=toy",
    )  # fmt: skip
    refused(
        r"toy-step16.json has no number for 'acc' \(1 such checkpoints\), and others have one",
        [bank], performance=[*files, lacking],
    )  # fmt: skip
    refused("has no results of task 'piqa'; it has lambada_openai; choose one with --task",
            [bank], performance=files, task="piqa")  # fmt: skip
    late = results(tmp_path / "late", {500: 0.1, 600: 0.2})
    refused(
        "performance of toy main has 2 steps from 500 to 600 and its gap 6 steps from 0 to 128",
        [bank], performance=late,
    )  # fmt: skip
    refused("The performance is of other and the gap of toy: .* rename=.'other': 'toy'",
            [bank], performance=results(tmp_path / "o", {0: 0.1}, model="other"))  # fmt: skip
    refused("The performance has no model 'm'; it has toy. Name one", [bank],
            performance=files, models=["m"])  # fmt: skip
    refused("gap 'x'.*fairness.*stereotype", [bank], gap="x")
    refused("A gap of fairness comes from a bank: name one, or --fairness-table", [],
            performance=files)  # fmt: skip
    refused("There is no performance: name a bank with LAMBADA, or", [])
    refused("--task piqa is read from result files: add", [bank], task="piqa")
    refused("`where` chooses rows of a table", [bank], where={"a": "b"})
    refused("rename.: the performance has no model 'x'; it has toy", [bank], rename={"x": "toy"})
    refused("Step 9 of the pair is not a step of both curves", [bank], pair=(8, 9))
    refused("there is no bank at .*nowhere", [tmp_path / "nowhere"], performance=files)


def test_tables_that_do_not_fit_are_named(tmp_path: Path) -> None:
    rows = [("m", 1, 0.5), ("m", 2, 0.6)]
    table = gap_table(tmp_path / "t.csv", rows, kind="a")
    with pytest.raises(UsageError, match=r"t.csv has the columns value, kind. Choose .* --gap"):
        read_curve(table, "x")
    with pytest.raises(UsageError, match=r"`where`: .*t.csv has no column y; it has model, step"):
        read_curve(table, "value", where={"y": "1"})
    with pytest.raises(UsageError, match=r"`where`: .*t.csv has no kind 'b'; it has a"):
        read_curve(table, "value", where={"kind": "b"})
    long = gap_table(tmp_path / "long.csv", rows, metric="acc")
    assert performance_files([long])["value"].to_list() == [0.5, 0.6]
    with pytest.raises(UsageError, match=r"Unknown metric 'f1': .*long.csv has acc. Choose one"):
        performance_files([long], metric="f1")
    for content, message in (
        ("model,value\nm,1\n", "lacks step; it has model, value"),
        ("model,step,value\nm,1,x\n", "'x'"),
        ("model,step,value\nm,1.5,1\n", "1.5"),
        ("model,step,value\nm,1e30,1\n", r"1e\+30"),
        ("model,step,value\nm,1,\nm,2,inf\n", r"value of m step 1 is None, .* \(2 such rows\)"),
    ):
        (tmp_path / "odd.csv").write_text(content)
        with pytest.raises(UsageError, match=f"odd.csv:? ?.*{message}"):
            read_curve(tmp_path / "odd.csv", "value")


def test_a_damaged_parquet_file_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "part.parquet"
    pl.DataFrame({"model": ["m"], "step": [1], "value": [0.1]}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"part.parquet"):
        read_curve(path, "value")

    def panic(
        *_: object, **__: object
    ) -> pl.DataFrame:  # as Polars did at one of 1,500 files with bytes changed
        raise pl.exceptions.PanicException("assertion failed\nat line 3")

    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(UsageError, match="assertion failed"):
        read_curve(path, "value")


def test_tables_and_charts_are_one_each(bank: Path) -> None:
    study = tradeoff([bank], bootstrap=50, max_accuracy_loss=10)
    assert set(study.tables) == {"tradeoff", "choices", "pairs", "change_points", "parts"}
    assert list(study.charts) == ["tradeoff", "curves"]
    panels = study.charts["curves"].vconcat
    assert len(panels) == 3, "accuracy, JSD-P of each answer, and the gap"
    assert {each.figure for each in study.findings} <= {*study.charts}
    assert len(study.findings[0].text.split()) <= 15
    (choice,) = (each for each in study.findings if "Smallest gap within 10 points" in each.text)
    assert choice.value == study.result.choices["gap"].item()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-accuracy-loss", "-1"], "The largest loss -1 is invalid"),
        (["--performance", "none.json"], "none.json"),
        (["--fairness-table", "none.csv"], "none.csv"),
    ],
)
def test_a_wrong_call_is_one_line(
    bank: Path, analyze: Call, words: list[str], message: str
) -> None:
    code, out, error = analyze(bank, "--bootstrap", 0, *words)
    assert (code, out) == (2, "")
    assert error.startswith("logitbank: ")
    assert error.count("\n") == 1
    assert message in error
