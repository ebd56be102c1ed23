"""Result files of lm-evaluation-harness: both layouts, where a step is found, what is refused."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logitbank.analysis.harness import document_checkpoint, read_harness
from logitbank.errors import UsageError
from tests.support.paths import PUBLIC as DATA

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
        "exact_match_stderr,strict-match": 0.03, "f1": 1.0, "f1_stderr": float("nan"),
    }  # fmt: skip
    table = read_harness([file(tmp_path / "r.json", results={"lambada_openai": values})])
    rows = {row["metric"]: (row["value"], row["stderr"]) for row in table.iter_rows(named=True)}
    assert rows["acc"] == (0.5, 0.01)
    assert rows["perplexity"][0] == 12.5
    assert rows["perplexity"][1] != rows["perplexity"][1]
    assert rows["exact_match,strict-match"] == (0.1, 0.03)
    assert rows["exact_match,flexible-extract"][0] == 0.2
    assert rows["f1"][1] != rows["f1"][1], "of one example"
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
    model, run, step = document_checkpoint(document, Path(f"{name}.json"))
    assert ((model, step), run) == (found, "main")
    config = {"model_args": "pretrained=o/m,revision=stage1-step9000-tokens19B"}
    assert document_checkpoint({"config": config}, Path("x.json")) == ("o/m", "stage1", 9000)


def metrics(**values: object) -> dict[str, object]:
    return {"lambada_openai": values}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("x", {"args": "pretrained=/runs/2024/llama/7B"}, "no training step"),
        ("results_2024-05-01T10", {"args": "pretrained=org/m"}, "no training step.*'none'"),
        ("x", {"args": f"pretrained=org/m,revision=step{'9' * 30}"}, "no training step"),
        ("step5", {"args": "x=1"}, "no model name"),
        ("x", {"results": {f"task{i:02}": {"acc": 1} for i in range(14)}}, "task07, …"),
        ("x", {"results": metrics(acc=float("nan"))}, "nan for acc"),
        ("x", {"results": metrics(acc=10**400)}, "inf for acc"),
        ("x", {"results": metrics(acc=0.5, acc_stderr=-0.1)}, "-0.1 for acc_stderr"),
        ("x", {"results": metrics(acc=0.5, acc_stderr=float("inf"))}, "inf for acc_stderr"),
        ("x", {"results": metrics(alias="x", acc="N/A", perplexity=True)}, "no number"),
        *(
            ("x", {"logitbank": dict(zip(("model", "run", "step"), checkpoint, strict=True))},
             "invalid checkpoint")
            for checkpoint in (
                ("m", "main", "8"), ("m", "main", 1.5), ("m", "main", [8]), ("m", "main", True),
                ("m", "main", 10**30), ("m", "main", -1), (None, "main", 8), ("m", 3, 8),
                ("m", "main", None),
            )
        ),
    ],
)  # fmt: skip
def test_invalid_files_are_refused(
    tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    path = file(tmp_path / f"{name}.json", **changes)
    with pytest.raises(UsageError, match=f"{name}.json.*{message}"):
        read_harness([path])


@pytest.mark.parametrize(
    "content",
    [
        b"acc 0.5", b"\xff\xfe", b"[" * 100_000, b"[1]", b"{}", b'{"results": [1]}',
        b'{"results": {"a": 1}}', b'{"results": {"lambada_openai": {"acc": ' + b"9" * 5000 + b"}}}",
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.json"
    path.write_bytes(content)
    for paths in ([path], [tmp_path / "none.json"], []):
        with pytest.raises(UsageError):
            read_harness(paths)


def test_two_files_of_one_checkpoint_must_agree(tmp_path: Path) -> None:
    one, same = file(tmp_path / "a.json"), file(tmp_path / "b.json")
    assert len(read_harness([one, same])) == 1
    other = file(tmp_path / "c.json", results=metrics(acc=0.5))
    with pytest.raises(UsageError, match=r"a.json and .*c.json .* 0.25 and 0.5"):
        read_harness([one, same, other])
