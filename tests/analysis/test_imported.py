"""Results of other tools as deposits: what is kept, what is analysed, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logitbank
from logitbank.analysis.families.options.study import option_study
from logitbank.errors import BankError, LogitbankError, UsageError
from logitbank.store import Bank, verify
from tests.support.command import Call
from tests.support.inspect_logs import inspect_log

NAME = "samples_sums_2026-11-23T02-57-16.166084.jsonl"
RESULTS = "results_2026-11-23T02-57-16.166084.json"


def sample(
    i: int, said: list[tuple[float, bool]], *, target: str = "0", context: str = "", **more: Any
) -> dict[str, Any]:
    """As lm-evaluation-harness 0.4.13 writes it: numbers as text, requests by name."""
    context = context or f"Question {i}?\nAnswer:"
    requests = {
        f"gen_args_{j}": {"arg_0": context, "arg_1": f" {'abc'[j]}"} for j in range(len(said))
    }
    answers = [[str(value), str(greedy)] for value, greedy in said]
    return {"doc_id": i, "doc": {"question": f"{i}?", "kind": "xy"[i % 2]}, "target": target,
            "arguments": requests, "resps": [[a] for a in answers], "filtered_resps": answers,
            "filter": "none", **more}  # fmt: skip


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


CHOICES = [
    sample(0, [(-1.0, True), (-2.0, False), (-3.0, False)]),
    sample(1, [(-4.0, False), (-2.5, True), (-2.5, False)], target="1"),
    sample(2, [(-1.0, False), (-0.5, True), (-9.0, False)], target="0"),
]


def test_choices_keep_their_sums_and_are_analysed(tmp_path: Path) -> None:
    file = written(tmp_path / NAME, CHOICES)
    (done,) = logitbank.deposit(tmp_path / "b", file, model="org/toy", step=20)
    assert str(done) == f"{NAME}: 3 queries of org/toy step 20, prompts sums"
    bank = Bank.open(tmp_path / "b")
    assert verify(bank) == ()
    rows = bank.scan("sums").sort("prompt_id", "token").collect()
    assert rows["logprob"].to_list() == [-1, -2, -3, -4, -2.5, -2.5, -1, -0.5, -9]
    assert rows["rank"].to_list() == [1, 2, 3, 3, 1, 1, 2, 1, 3]
    assert rows["ties"].to_list() == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert rows["exact"].all()
    assert rows["option"].to_list() == ["a", "b", "c"] * 3
    assert rows["answer"].to_list() == ["a"] * 3 + ["b"] * 3 + ["a"] * 3
    assert rows["doc_kind"].to_list() == ["x"] * 3 + ["y"] * 3 + ["x"] * 3
    (row,) = option_study(bank, "sums").result.answers.rows(named=True)
    assert (row["prompts"], row["accuracy"], row["tied"]) == (3, 1 / 3, 1)
    (query_set,) = bank.query_sets().values()
    assert {query.head for query in query_set.queries} == {"continuation"}


def test_a_word_is_right_where_greedy_decoding_writes_it(tmp_path: Path) -> None:
    said = [(-0.5, True), (-3.0, False), (-1.5, True), (-2.0, False)]
    lines = [sample(i, [value], target=" a") for i, value in enumerate(said)]
    file = written(tmp_path / "samples_lambada_openai_2026-11-23T00-00-00.1.jsonl", lines)
    logitbank.deposit(tmp_path / "b", file, model="m", step=1, prompts="lambada")
    (row,) = logitbank.lambada(tmp_path / "b").result.lambada.rows(named=True)
    assert (row["acc"], row["examples"], row["inexact"]) == (0.5, 4, 0)
    assert row["perplexity"] == pytest.approx(math.exp(7 / 4))


def test_a_text_of_which_nobody_said_whether_it_is_greedy_has_no_exact_rank(tmp_path: Path) -> None:
    line = sample(0, [(-7.0, False)])
    line |= {"arguments": {"gen_args_0": {"arg_0": "a whole text"}}, "filtered_resps": ["-7.0"]}
    logitbank.deposit(tmp_path / "b", written(tmp_path / "samples_r.jsonl", [line]), model="m")
    (row,) = Bank.open(tmp_path / "b").scan("r").collect().rows(named=True)
    assert (row["rank"], row["ties"], row["exact"], row["step"]) == (1, 1, False, None)
    assert (row["logprob"], row["continuation"]) == (-7, "a whole text")


def test_model_step_and_version_come_from_the_results_beside(tmp_path: Path) -> None:
    file = written(tmp_path / NAME, CHOICES)
    results = {"results": {}, "lm_eval_version": "0.4.13", "config": {
        "model_args": {"pretrained": "org/toy", "revision": "step512"}}}  # fmt: skip
    (tmp_path / RESULTS).write_text(json.dumps(results))
    (done,) = logitbank.deposit(tmp_path / "b", [file])
    assert str(done.deposit.checkpoint) == "org/toy step 512"
    made = done.deposit.spec.provenance
    assert (made["engine"], made["engine_version"]) == ("lm-evaluation-harness", "0.4.13")
    imported: Any = made["imported"]
    assert [each["name"] for each in imported["files"]] == [NAME, RESULTS]
    assert len(imported["files"][0]["sha256"]) == 64


def test_the_same_again_changes_nothing_and_other_scores_are_refused(tmp_path: Path) -> None:
    file, bank = written(tmp_path / NAME, CHOICES), tmp_path / "b"
    for _ in range(2):
        logitbank.deposit(bank, file, model="m", step=1)
    other = [sample(0, [(-1.5, True), (-2.0, False), (-3.0, False)]), *CHOICES[1:]]
    with pytest.raises(BankError):
        logitbank.deposit(bank, written(tmp_path / "o" / NAME, other), model="m", step=1)
    logitbank.deposit(bank, written(tmp_path / "o" / NAME, other), model="m", step=2)
    assert Bank.open(bank).steps == [1, 2]


def test_half_of_the_requests_are_left_out_where_they_repeat_without_context(
    tmp_path: Path,
) -> None:
    line = sample(0, [(-1.0, False), (-2.0, False)])
    alone = {f"gen_args_{j + 2}": {"arg_0": "", "arg_1": f" {'ab'[j]}"} for j in range(2)}
    line["arguments"] |= alone
    line["filtered_resps"] += [["-0.1", "False"], ["-0.2", "False"]]
    logitbank.deposit(tmp_path / "b", written(tmp_path / "samples_m.jsonl", [line]), model="m")
    assert Bank.open(tmp_path / "b").scan("m").collect()["logprob"].sort().to_list() == [-2, -1]


def olmes(folder: Path) -> Path:
    requests = [
        {"doc_id": i, "task_name": "arc_easy", "doc": {"grade": 3}, "request": {
            "context": f"Q{i}", "continuation": f" {word}"}}
        for i in range(2) for word in ("x", "y")
    ]  # fmt: skip
    said = [[(-3.0, False), (-1.0, True)], [(-2.0, False), (-4.0, False)]]
    lines = [
        {"doc_id": i, "label": 1, "model_output": [
            {"sum_logits": value, "num_tokens": 2, "is_greedy": greedy} for value, greedy in each]}
        for i, each in enumerate(said)
    ]  # fmt: skip
    written(folder / "task-000-arc_easy-requests.jsonl", requests)
    (folder / "task-000-arc_easy-metrics.json").write_text(
        json.dumps({"model_config": {"model": "allenai/OLMo-1B", "revision": "step1000-tokens4B"}})
    )
    return written(folder / "task-000-arc_easy-predictions.jsonl", lines)


def test_predictions_of_olmes_find_their_texts_and_checkpoint(tmp_path: Path) -> None:
    (done,) = logitbank.deposit(tmp_path / "b", olmes(tmp_path / "o"))
    assert str(done.deposit.checkpoint) == "allenai/OLMo-1B step 1000"
    rows = Bank.open(tmp_path / "b").scan("arc_easy").sort("prompt_id", "token").collect()
    assert rows["logprob"].to_list() == [-3, -1, -2, -4]
    assert rows["text"].to_list() == ["Q0", "Q0", "Q1", "Q1"]
    assert rows["answer"].unique().to_list() == ["y"]


def test_a_log_of_inspect_gives_the_letters_that_the_model_listed(tmp_path: Path) -> None:
    (done,) = logitbank.deposit(tmp_path / "b", inspect_log(tmp_path / "log.json"))
    assert str(done).endswith("2 queries of org/chat release, prompts toy, 1 without"
                              " log-probabilities left out")  # fmt: skip
    rows = Bank.open(tmp_path / "b").scan("toy").sort("prompt_id", "option").collect()
    scored = {(r["prompt_id"], r["option"]): math.exp(r["logprob"]) for r in rows.to_dicts()}
    assert scored == pytest.approx(
        {("q0", "A"): 0.125, ("q0", "B"): 0.75, ("q1", "A"): 0.5, ("q1", "B"): 0.25,
         ("q1", "C"): 0.25}, abs=1e-6)  # fmt: skip
    exact = rows.group_by("prompt_id").agg(pl.col("exact").all()).sort("prompt_id")
    assert exact["exact"].to_list() == [False, True]
    assert "What" not in rows["text"][0]
    assert "B) two" in rows["text"][0]


BAD = sample(0, [(-1.0, True), (-2.0, False)])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2 is no JSON.*cut short"),
        ("[]", "line 2 is no JSON object"),
        ({"doc_id": 1}, "line 2 is no sample .* it lacks arguments, filtered_resps"),
        (BAD | {"filtered_resps": [["-1", "True"]]}, "line 2 has 2 requests"),
        (BAD | {"filtered_resps": [["nan", "x"], ["-1", "x"]]}, "line 2 has 'nan' for"),
        (BAD | {"filtered_resps": [["0.7", "x"], ["-1", "x"]]}, "line 2 has '0.7' for"),
        (BAD | {"filtered_resps": [["-inf", "x"], ["-1", "x"]]}, "line 2 has '-inf' for"),
        (BAD | {"arguments": {"a": {"b": "t", "c": {"until": []}}}}, "generates text"),
        (BAD | {"arguments": []}, "no pairs of context and continuation"),
        (CHOICES[0], "line 2 has document 0 again"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(
    tmp_path: Path, line: Any, message: str
) -> None:
    file = written(tmp_path / NAME, [CHOICES[0]])
    with file.open("a") as lines:
        lines.write(line if isinstance(line, str) else json.dumps(line))
    with pytest.raises(UsageError, match=message):
        logitbank.deposit(tmp_path / "b", file, model="m")
    assert not (tmp_path / "b").exists()


def test_choices_in_an_order_that_nobody_told_are_refused(tmp_path: Path) -> None:
    log = inspect_log(tmp_path / "log.json")
    steps = [{"solver": "multiple_choice", "params": {"shuffle": True}}]
    log.write_text(json.dumps(json.loads(log.read_text()) | {"plan": {"steps": steps}}))
    with pytest.raises(UsageError, match="shuffled the choices of each sample"):
        logitbank.deposit(tmp_path / "b", log)


def test_what_is_no_file_of_results_says_what_is(tmp_path: Path) -> None:
    empty = written(tmp_path / "samples_e.jsonl", [])
    other = written(tmp_path / "x.jsonl", [{"a": 1}])
    log = tmp_path / "x.json"
    log.write_text('{"eval": {}, "samples": []}')
    alone = olmes(tmp_path / "o").rename(tmp_path / "p-predictions.jsonl")
    for file, message in (
        (empty, "is no file of results that is known"),
        (other, "is no file of results that is known; known are samples_….jsonl"),
        (log, "evaluate with logprobs=True and top_logprobs=20"),
        (alone, "p-requests.jsonl is not beside it"),
        (tmp_path / "none", "there is no file of results"),
    ):
        with pytest.raises(LogitbankError, match=message):
            logitbank.deposit(tmp_path / "b", file, model="m")
    with pytest.raises(UsageError, match="no model is named in .*--model"):
        logitbank.deposit(tmp_path / "b", written(tmp_path / NAME, CHOICES))


def test_the_command_deposits_files_of_several_checkpoints(tmp_path: Path, call: Call) -> None:
    file, bank = written(tmp_path / NAME, CHOICES), str(tmp_path / "b")
    code, said, error = call("deposit", bank, str(file), "--model", "org/toy", "--step", "8")
    assert (code, said, error) == (0, f"{NAME}: 3 queries of org/toy step 8, prompts sums\n", "")
    code, said, _ = call("info", bank, "--format", "csv")
    assert code == 0
    assert "org/toy,main,8" in said
    code, _, error = call("deposit", bank, str(file))
    assert code == 2
    assert "name it with --model" in error
