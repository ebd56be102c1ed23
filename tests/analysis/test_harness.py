"""Result files of lm-evaluation-harness: both layouts, where a step is found, what is refused."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logitbank.analysis.families.lambada.metric import lambada_metric
from logitbank.analysis.harness import checkpoint_of, read_harness, write_harness
from logitbank.errors import UsageError
from logitbank.version import __version__
from tests.support.paths import PUBLIC as DATA
from tests.support.piece_cases import piece_frame

SAMPLES = DATA / "pythia" / "lm-evaluation-harness-samples"


def file(path: Path, *, results: object = None, args: object = None, **more: object) -> Path:
    """A file of the new layout; by default LAMBADA with accuracy 0.25."""
    metrics = {"alias": "lambada_openai", "acc,none": 0.25, "acc_stderr,none": "N/A"}
    document = {
        "results": {"lambada_openai": metrics} if results is None else results,
        "config": {"model_args": args or "pretrained=org/m,revision=step8,dtype=float16"},
        **more,
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def samples() -> list[Path]:
    paths = sorted(SAMPLES.glob("*.json"))
    if not paths:
        pytest.skip(f"needs result files in {SAMPLES}; set LOGITBANK_DATA")
    return paths


def test_published_files_give_their_accuracy_and_perplexity(samples: list[Path]) -> None:
    table = read_harness(samples)
    assert table.filter(pl.col("metric") == "acc").select("model", "step", "value").rows() == [
        ("EleutherAI/pythia-v1.1-160m", 0, 0.0),
        ("EleutherAI/pythia-v1.1-160m", 512, 0.0),
        ("EleutherAI/pythia-v1.1-160m", 13000, 0.2998253444595381),
        ("EleutherAI/pythia-v1.1-160m", 83000, 0.37182223947215215),
        ("EleutherAI/pythia-v1.1-160m", 143000, 0.3283524160683097),
        ("EleutherAI/pythia-v1.1-6.9b", 83000, 0.6456433145740346),
    ]
    row = table.filter((pl.col("metric") == "perplexity") & (pl.col("step") == 13000))
    assert row.select("value", "stderr").row(0) == (49.688512809745404, 1.8897432417425482)


def test_published_files_agree_with_the_published_table(samples: list[Path]) -> None:
    with (DATA / "pythia" / "lambada-openai-by-step.csv").open(encoding="utf-8") as lines:
        published = {
            (row["model"], int(row["step"])): row
            for row in csv.DictReader(lines)
            if row["suite"] == "pythia-v1" and row["shots"] == "zero-shot"
        }
    table = read_harness(samples)
    for row in table.iter_rows(named=True):
        model = row["model"].replace("EleutherAI/pythia-v1.1", "pythia")
        known = published[model, row["step"]]
        name = {"perplexity": "ppl"}.get(row["metric"], row["metric"])
        assert row["value"] == float(known[name])
        assert row["stderr"] == float(known[f"{name}_stderr"])
    assert len(table) == 12


def test_other_tasks_of_published_files_are_read_too(samples: list[Path]) -> None:
    table = read_harness(samples, task="crows_pairs_english")
    assert set(table["metric"]) == {"likelihood_diff", "pct_stereotype"}, "as the new layout has it"
    document = json.loads(samples[1].read_text())["results"]["crows_pairs_english"]
    assert document["pct_stereotype"] in table["value"]


def test_the_new_layout_drops_the_filter_none_and_what_is_text(tmp_path: Path) -> None:
    values = {
        " ": " ", "alias": " - lambada_openai", "acc,none": 0.5, "acc_stderr,none": 0.01,
        "perplexity,none": 12.5, "perplexity_stderr,none": "N/A", "ppl,none": "N/A",
        "exact_match,strict-match": 0.1, "exact_match,flexible-extract": 0.2,
        "exact_match_stderr,strict-match": 0.03,
    }  # fmt: skip
    table = read_harness([file(tmp_path / "r.json", results={"lambada_openai": values})])
    rows = {row["metric"]: (row["value"], row["stderr"]) for row in table.iter_rows(named=True)}
    assert rows["acc"] == (0.5, 0.01)
    assert rows["perplexity"][0] == 12.5
    assert rows["perplexity"][1] != rows["perplexity"][1]
    assert rows["exact_match,strict-match"] == (0.1, 0.03)
    assert rows["exact_match,flexible-extract"][0] == 0.2
    assert set(table["run"]) == {"main"}


@pytest.mark.parametrize(
    ("document", "name", "found"),
    [
        ({"config": {"model_args": "pretrained=o/m,revision=step13000"}}, "x", ("o/m", 13000)),
        ({"config": {"model_args": {"pretrained": "o/m", "revision": "step5"}}}, "x", ("o/m", 5)),
        ({"config": {"model_revision": "step7"}, "model_name": "o/m"}, "x", ("o/m", 7)),
        ({"config": {"model_args": "pretrained=runs/a/step40"}}, "x", ("a", 40)),
        ({"config": {"model_args": "pretrained=./runs/a-step40,dtype=auto"}}, "x", ("a", 40)),
        ({"config": {"model_args": "pretrained=/big/disk/a/step_40/"}}, "x", ("a", 40)),
        ({"config": {"model_args": "pretrained=o/m,revision=main"}}, "m-step9", ("o/m", 9)),
        ({}, "pythia-160m-step13000", ("pythia-160m", 13000)),
        ({"config": None}, "160m_step512", ("160m", 512)),
        ({"model_name": ["m"]}, "160m_step512", ("160m", 512)),
        ({"config": {"model_args": "pretrained=o/m,revision=chck_1M"}}, "x", ("o/m", 1_000_000)),
        ({"config": {"model_args": "pretrained=o/m-step20k"}}, "x", ("o/m", 20_000)),
        ({"config": {"model_args": "pretrained=/2024/a/ckpt_7/hf"}}, "x", ("a", 7)),
    ],
)  # fmt: skip
def test_model_and_step_are_found(
    document: dict[str, Any], name: str, found: tuple[str, int]
) -> None:
    model, run, step = checkpoint_of(document, Path(f"{name}.json"))
    assert ((model, step), run) == (found, "main")


def test_a_stage_in_the_revision_is_the_run() -> None:
    config = {"model_args": "pretrained=o/m,revision=stage1-step9000-tokens19B"}
    assert checkpoint_of({"config": config}, Path("x.json")) == ("o/m", "stage1", 9000)


def test_a_date_or_a_size_in_a_path_is_no_step() -> None:
    config = {"model_args": "pretrained=/runs/2024/llama/7B"}
    with pytest.raises(UsageError, match="no training step is in x.json"):
        checkpoint_of({"config": config}, Path("x.json"))


def refused(path: Path, message: str, **options: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        read_harness([path], **options)
    assert "\n" not in str(error.value)


def test_what_is_no_result_file_is_refused_by_name(tmp_path: Path) -> None:
    refused(tmp_path / "none.json", "there is no result file .*none.json; check the path")
    text = tmp_path / "text.json"
    text.write_text("acc 0.5")
    refused(text, r"text.json is no JSON, as a result file is: Expecting")
    text.write_bytes(b"\xff\xfe")
    refused(text, "text.json is no JSON")
    for content in ("[" * 100_000, '{"results": {"lambada_openai": {"acc": ' + "9" * 5000 + "}}}"):
        text.write_text(content)
        refused(text, "text.json is no JSON")
    text.write_text("[1]")
    refused(text, "text.json is no result file: its JSON is no object")
    for content in ("{}", '{"results": [1]}', '{"results": {"a": 1}}'):
        text.write_text(content)
        refused(text, r"text.json is no result file of lm-evaluation-harness")
    with pytest.raises(UsageError, match=r"no result file was given"):
        read_harness([])


def test_a_file_of_another_task_lists_the_tasks_it_has(tmp_path: Path) -> None:
    path = file(tmp_path / "r.json", results={f"task{i:02}": {"acc": 1} for i in range(14)})
    refused(
        path,
        r"r.json has no results of task 'lambada_openai'; it has task00, .*task11 and 2 more; "
        "choose one with --task",
    )


def test_a_file_without_a_step_or_a_model_is_named(tmp_path: Path) -> None:
    path = file(tmp_path / "results_2024-05-01T10.json", args="pretrained=org/m")
    refused(path, r"no training step is in .*\(revision 'none'\).*<model>-step<number>.json")
    refused(file(tmp_path / "step5.json", args="x=1"), "no model is named in .*step5.json")


def test_a_value_that_is_not_finite_is_named(tmp_path: Path) -> None:
    values = {"acc,none": float("nan"), "perplexity,none": float("inf")}
    path = file(tmp_path / "r.json", results={"lambada_openai": values})
    refused(path, r"r.json has nan for acc, which is not finite \(2 such values\)")


@pytest.mark.parametrize("value", [-0.1, float("inf")])
def test_a_standard_error_that_is_none_is_named(tmp_path: Path, value: float) -> None:
    values = {"acc,none": 0.5, "acc_stderr,none": value}
    path = file(tmp_path / "r.json", results={"lambada_openai": values})
    refused(path, rf"r.json has {value} for acc stderr, which is no standard error \(1 such")


def test_the_standard_error_of_one_example_is_none(tmp_path: Path) -> None:
    values = {"acc,none": 1.0, "acc_stderr,none": float("nan")}
    path = file(tmp_path / "r.json", results={"lambada_openai": values})
    assert read_harness([path])["stderr"].is_nan().to_list() == [True]


def test_a_number_beyond_floats_is_not_finite(tmp_path: Path) -> None:
    path = file(tmp_path / "r.json", results={"lambada_openai": {"acc": 10**400}})
    refused(path, "r.json has inf for acc, which is not finite")


def test_a_file_without_a_number_is_named(tmp_path: Path) -> None:
    values = {"alias": "x", "acc,none": "N/A", "acc_stderr,none": "N/A", "perplexity": True}
    path = file(tmp_path / "r.json", results={"lambada_openai": values})
    refused(path, "r.json has no number of task 'lambada_openai'; leave the file out")


@pytest.mark.parametrize(
    ("model", "run", "step"),
    [("m", "main", "8"), ("m", "main", 1.5), ("m", "main", [8]), ("m", "main", True),
     ("m", "main", 10**30), ("m", "main", -1), (None, "main", 8), ("m", 3, 8)],
)  # fmt: skip
def test_a_checkpoint_that_is_none_is_refused(
    tmp_path: Path, model: object, run: object, step: object
) -> None:
    path = file(tmp_path / "r.json", logitbank={"model": model, "run": run, "step": step})
    refused(path, "r.json: its key logitbank has the model .* they are two texts and a number")


def test_a_step_of_thirty_digits_is_none(tmp_path: Path) -> None:
    path = file(tmp_path / "r.json", args=f"pretrained=org/m,revision=step{'9' * 30}")
    refused(path, "no training step is in .*r.json")


def test_two_files_of_one_checkpoint_must_agree(tmp_path: Path) -> None:
    one, same = file(tmp_path / "a.json"), file(tmp_path / "b.json")
    assert len(read_harness([one, same])) == 1
    other = file(tmp_path / "c.json", results={"lambada_openai": {"acc": 0.5}})
    message = r"a.json and .*c.json are both org/m step 8, with acc 0.25 and 0.5 \(1 such cases\)"
    with pytest.raises(UsageError, match=message):
        read_harness([one, same, other])


def scores() -> pl.DataFrame:
    words = {"a": [(-1.0, 1, 0), (-2.0, 1, 0)], "b": [(-0.1, 2, 0)], "c": [(-1 / 3, 1, 0)]}
    return pl.concat(
        [
            piece_frame(words, step=step, model=model, run=run)
            for model in ("org/one,two=2", "x")
            for run in ("main", "seed 1")
            for step in (0, 1000, None)
        ]
    )


METRICS = {"acc": "acc", "perplexity": "perplexity"}


def test_exported_files_read_back_to_the_same_numbers(tmp_path: Path) -> None:
    table = lambada_metric(scores()).lambada
    paths = write_harness(
        table, tmp_path / "r", task="lambada_openai", metrics=METRICS, samples="examples"
    )
    assert len(paths) == 8, "a release has no step"
    assert {p.name for p in paths} >= {"results_x-step0.json", "results_x-seed%201-step1000.json"}
    again = read_harness(paths)
    known = table.filter(pl.col("step").is_not_null()).sort("model", "run", "step")
    for metric in METRICS:
        rows = again.filter(pl.col("metric") == metric)
        assert (
            rows.select("model", "run", "step").rows()
            == known.select("model", "run", "step").rows()
        )
        assert rows["value"].to_list() == known[metric].to_list()
        assert rows["stderr"].to_list() == known[f"{metric}_stderr"].to_list()


def test_the_harness_finds_exported_files_and_makes_its_table_of_them(tmp_path: Path) -> None:
    """By its own functions, which its command line and others' scripts call."""
    pytest.importorskip("lm_eval")
    from lm_eval.utils import get_results_filenames, make_table

    table = lambada_metric(scores()).lambada.filter(pl.col("model") == "x", pl.col("run") == "main")
    row = table.filter(pl.col("step") == 0).row(0, named=True)
    for task in ("lambada_openai", "zero"):
        (path, _) = write_harness(table, tmp_path, task=task, metrics=METRICS, samples="examples")
    assert get_results_filenames([str(path)]) == [str(path)]
    lines = make_table(json.loads(path.read_text())).splitlines()
    assert len(lines) == 2 + 4
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[:6] == ["lambada_openai", f"logitbank {__version__}", "none", "0", "acc", "↑"]
    assert cells[6:] == [f"{row['acc']:.4f}", "±", f"{row['acc_stderr']:.4f}"]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["lambada_openai", "", "zero", ""]


def test_exported_files_have_the_new_layout(tmp_path: Path) -> None:
    table = lambada_metric(scores()).lambada.filter(pl.col("model") == "x", pl.col("run") == "main")
    (path, _) = write_harness(
        table, tmp_path, task="lambada_openai", metrics=METRICS, samples="examples"
    )
    document = json.loads(path.read_text())
    metrics = document["results"]["lambada_openai"]
    assert list(metrics) == [
        "alias", "acc,none", "acc_stderr,none", "perplexity,none", "perplexity_stderr,none"
    ]  # fmt: skip
    assert metrics["acc,none"] == 2 / 3
    assert document["n-samples"] == {"lambada_openai": {"effective": 3}}
    assert document["config"]["model_args"] == {"pretrained": "x", "revision": "step0"}
    assert not re.search(r"NaN|Infinity", path.read_text())


def test_other_tasks_of_an_exported_file_stay(tmp_path: Path) -> None:
    table = (
        lambada_metric(scores()).lambada.filter(pl.col("model") == "x", pl.col("step") == 0).head(1)
    )
    for task in ("lambada_openai", "other"):
        write_harness(table, tmp_path, task=task, metrics={"acc": "acc"}, samples="examples")
    (path,) = tmp_path.iterdir()
    assert set(json.loads(path.read_text())["results"]) == {"lambada_openai", "other"}
    assert read_harness([path], task="other")["value"].to_list() == [2 / 3]


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    table = (
        lambada_metric(scores()).lambada.filter(pl.col("model") == "x", pl.col("step") == 0).head(1)
    )
    path = file(tmp_path / "results_x-step0.json")
    before = path.read_text()
    with pytest.raises(UsageError, match=r"results_x-step0.json is there and is not of this bank"):
        write_harness(table, tmp_path, task="t", metrics={"acc": "acc"}, samples="examples")
    assert path.read_text() == before
