"""Extraction from plan to bank, with the real worker and store and a fake engine."""

import importlib.util
import json
import shutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from logitbank.engine.backends.protocol import Loaded
from logitbank.engine.extract import extract
from logitbank.engine.plan.engine_choice import choose_engine
from logitbank.engine.prompts.check import prompts_show
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.workers.events import Event, Preparing
from logitbank.errors import (
    DiskSpaceError,
    KeepLevelError,
    MissingExtraError,
    PromptError,
    SuiteError,
    UsageError,
)
from logitbank.store import Bank, DepositWriter, Query
from tests.support.fakes import (
    TEXTS,
    FakeBackend,
    InProcess,
    go,
    questions,
    request_for,
    write_series,
)
from tests.support.resolved import run
from tests.support.small_banks import rewrite

Usage = namedtuple("Usage", "total used free")


def test_the_bank_gives_back_the_engines_logits(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    summary = go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert summary.complete
    assert [c.step for c in summary.done] == [0, 1, 2]
    bank = Bank.open(tmp_path / "b.zarr")
    frame = bank.scan("mine").filter(step=1, prompt_id="p1", option="female").collect()
    where = bank.query_set(frame["query_set"].item()).queries[frame["row"].item()]
    backend._folder = "step1"
    row = backend.logits(Query(where.ids, where.position))
    token = frame["token"].item()
    assert frame["logit"].item() == pytest.approx(row[token], abs=1e-6)
    assert frame["rank"].item() == 1 + np.count_nonzero(row > row[token])
    assert frame["length"].item() == len(TEXTS[1])
    assert bank.info()["sealed"].all()


def test_a_complete_bank_starts_no_engine(
    tmp_path: Path, series: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[InProcess] = []
    monkeypatch.setattr(InProcess, "start", lambda worker: started.append(worker))
    extract(tmp_path / "b.zarr", suites=series, prompts=questions(*TEXTS), canary_every=0)
    scored = backend.scored
    again = extract(tmp_path / "b.zarr", suites=series, prompts=questions(*TEXTS), canary_every=0)
    assert (again.plan.rows, backend.scored, len(started)) == (0, scored, 1)
    write_series(series, "step3")
    extract(tmp_path / "b.zarr", suites=series, prompts=questions(*TEXTS), canary_every=0)
    assert len(started) == 2


def test_a_suite_and_prompts_may_be_paths(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"text": "The nurse is", "options": [" male", " female"]}\n')
    for prompts in (file, [file]):
        extract(tmp_path / "b.zarr", suites=series, prompts=prompts, canary_every=0)
    assert Bank.open(tmp_path / "b.zarr").prompt_sets == ["mine"]
    assert prompts_show(file)[0] == "mine: 1 prompt, 1 shown"


def test_the_bank_has_what_the_tokens_say_and_an_older_one_gets_it(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    bank = Bank.open(tmp_path / "b.zarr")
    rows = bank.sql("SELECT DISTINCT continuation, token_text FROM options")
    assert sorted(rows.collect().rows()) == [(" female", " female"), (" male", " male")]
    shutil.rmtree(bank.path / "tokens")
    scored = backend.scored
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert " male" in bank.tokens()["text"]
    assert backend.scored == scored


def test_more_prompts_cost_only_their_own_queries(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS[:2]))
    assert backend.scored == 2 * 3
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert backend.scored == 3 * 3
    assert len(Bank.open(tmp_path / "b.zarr").scan("mine").collect()) == 3 * 3 * 2


def test_a_new_checkpoint_costs_only_itself(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    write_series(series, "step3")
    summary = go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert [c.step for c in summary.done] == [3]
    assert backend.loads.count("step0") == 1


def test_new_options_are_read_from_the_stored_rows(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    before = backend.scored
    wider = PromptSet("wider", questions(*TEXTS, options=(" she", " he", " her")).prompts)
    go(tmp_path / "b.zarr", series, wider)
    assert backend.scored == before
    frame = Bank.open(tmp_path / "b.zarr").scan("wider").filter(step=0).collect()
    assert len(frame) == 9
    assert not frame["exact"].any()
    assert frame["logit"].is_finite().all()


def test_equal_weights_of_two_steps_are_reported(
    tmp_path: Path, series: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = backend.load
    monkeypatch.setattr(backend, "load", lambda folder, **options: load(Path("same"), **options))
    summary = go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert "tiny step 1 has the same weights as tiny step 0" in summary.notes


def test_checkpoints_that_the_bank_has_under_another_name_are_a_note(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    prompts, told = (
        questions(*TEXTS),
        "b.zarr has model 'first' with these checkpoints; add --model",
    )
    for model, notes in (("first", 0), ("tiny", 1), ("tiny", 0)):
        suite = resolve_suite(str(series), model=model)
        request = replace(request_for(series, prompts), suites=suite)
        summary = run(tmp_path / "b.zarr", request)
        assert len([note for note in summary.notes if note.startswith(told)]) == notes


def other_vocabulary(series: Path) -> None:
    write_series(series, "step1", vocab_size=700)


def other_tokenizer(series: Path) -> None:
    path = series / "step1" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["merges"].pop()
    path.write_text(json.dumps(tokenizer))


def short_weights(series: Path) -> None:
    (series / "step1" / "model.safetensors").write_bytes(b"123")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (other_vocabulary, "its vocab_size is 700, the first checkpoint's 640"),
        (other_tokenizer, "its tokenizer"),
        (short_weights, "model.safetensors is truncated or damaged (3 bytes"),
    ],
)
def test_an_incompatible_checkpoint_is_refused_alone_before_an_engine_loads_it(
    tmp_path: Path, series: Path, backend: FakeBackend, change: Callable[[Path], None], named: str
) -> None:
    change(series)
    summary = go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert [c.step for c in summary.done] == [0, 2]
    assert named in summary.failed[0].message
    assert "step1" not in backend.loads


def test_tokenizer_files_with_equal_ids_are_the_same_tokenizer(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    path = series / "step2" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"padding_side": "left"}))
    assert go(tmp_path / "b.zarr", series, questions(*TEXTS)).complete


def test_a_first_checkpoint_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    (series / "step0" / "config.json").write_text('{"vocab_size": ')
    summary = go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert [c.step for c in summary.done] == [1, 2]
    assert "step0/config.json is not JSON" in summary.failed[0].message


def test_a_folder_left_empty_by_a_killed_run_becomes_the_bank(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    (tmp_path / "b.zarr").mkdir()
    (tmp_path / "b.zarr" / ".zarr.json-1").touch()
    assert go(tmp_path / "b.zarr", series, questions(*TEXTS)).complete


def test_a_prompt_over_the_models_limit_is_refused_and_leaves_no_worker_and_no_log(
    tmp_path: Path, series: Path
) -> None:
    with pytest.raises(
        PromptError, match=r"'p1' of 'mine' has 65 tokens, .* at most 64 \(1 contexts"
    ):
        go(tmp_path / "b.zarr", series, questions(" the", " the" * 65))
    assert {p.name for p in tmp_path.iterdir()} == {"tiny"}


def test_a_plan_larger_than_the_disk_is_refused_with_levels_that_fit(
    tmp_path: Path, series: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 3000))
    with pytest.raises(DiskSpaceError, match=r"24.5 kB \(9 results .* --keep options"):
        go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert not (tmp_path / "b.zarr").exists()


def test_asking_for_more_than_was_kept_is_refused(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS), keep="options")
    with pytest.raises(KeepLevelError, match="does not include full"):
        go(tmp_path / "b.zarr", series, questions(*TEXTS))


def test_new_options_without_full_rows_are_refused_before_anything_is_written(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS), keep="options")
    before = sorted((tmp_path / "b.zarr" / "prompts").iterdir())
    other = [
        replace(p, options=(*p.options, Option("the", " the"))) for p in questions(*TEXTS).prompts
    ]
    with pytest.raises(KeepLevelError, match="Option 'the' is new"):
        go(tmp_path / "b.zarr", series, PromptSet("more", tuple(other)), keep="options")
    assert sorted((tmp_path / "b.zarr" / "prompts").iterdir()) == before


def test_a_suite_of_the_same_name_is_not_taken_for_the_one_in_the_bank(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    other = write_series(tmp_path / "elsewhere" / series.name, "step0", "step1", "step2")
    assert go(tmp_path / "b.zarr", other, questions(*TEXTS)).plan.rows == 0, "a copy is the same"
    save_file({"w": np.ones(3, np.float32)}, other / "step1" / "model.safetensors")
    with pytest.raises(SuiteError, match=r"has tiny step 1 from another source .*--model"):
        go(tmp_path / "b.zarr", other, questions(*TEXTS))


def test_a_bank_of_another_dtype_is_refused(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    with pytest.raises(UsageError, match="in the bank with --dtype float32, not float16"):
        go(tmp_path / "b.zarr", series, questions(*TEXTS), dtype="float16")


def test_a_deposit_is_not_continued_with_another_engine(
    tmp_path: Path, series: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DepositWriter, "seal", lambda _: None)
        go(tmp_path / "b.zarr", series, questions(*TEXTS))
    (deposit, *_) = Bank.open(tmp_path / "b.zarr").deposits()
    rewrite(
        deposit.path / "zarr.json",
        lambda d: d["attributes"]["logitbank"]["provenance"].update(engine="vllm"),
    )
    (deposit.path / "commits/0.json").unlink()
    with pytest.raises(UsageError, match="was begun with --engine vllm, not transformers"):
        go(tmp_path / "b.zarr", series, questions(*TEXTS))


def test_two_prompt_sets_of_one_name_are_refused(tmp_path: Path, series: Path) -> None:
    twice = (questions(TEXTS[0]), questions(TEXTS[1]))
    with pytest.raises(UsageError, match="'mine'"):
        extract(tmp_path / "b", suites=series, prompts=twice)


def test_a_run_that_ended_before_its_seal_is_sealed_by_the_next(
    tmp_path: Path, series: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DepositWriter, "seal", lambda _: None)
        go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert not Bank.open(tmp_path / "b.zarr").info()["sealed"].any()
    assert go(tmp_path / "b.zarr", series, questions(*TEXTS)).plan.rows == 0
    assert Bank.open(tmp_path / "b.zarr").info()["sealed"].all()


def test_other_weights_under_one_checkpoint_are_refused(
    tmp_path: Path, series: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(tmp_path / "b.zarr", series, questions(TEXTS[0]))
    monkeypatch.setattr(
        FakeBackend, "load", lambda self, *_, **__: Loaded("other weights", self.vocab, 0.0)
    )
    summary = go(tmp_path / "b.zarr", series, questions(*TEXTS))
    assert summary.done == []
    assert "other weights" in summary.failed[0].message


@pytest.mark.usefixtures("backend")
def test_a_dry_run_plans_and_writes_nothing(tmp_path: Path, series: Path) -> None:
    request = request_for(series, questions(*TEXTS))
    summary = run(tmp_path / "b.zarr", request, dry_run=True)
    assert summary.plan.rows == 9
    assert not (tmp_path / "b.zarr").exists()


def test_a_dry_run_refuses_a_changed_answer_as_the_run_does(
    tmp_path: Path, series: Path, backend: FakeBackend
) -> None:
    go(tmp_path / "b.zarr", series, questions(*TEXTS))
    first, *rest = questions(*TEXTS).prompts
    changed = PromptSet("mine", (replace(first, answer="female"), *rest))
    request = request_for(series, changed)
    for dry_run in (True, False):
        with pytest.raises(UsageError, match="'p0' is in the bank's 'mine' with another 'answer'"):
            run(tmp_path / "b.zarr", request, dry_run=dry_run)


def test_wrong_calls_are_refused(tmp_path: Path, series: Path) -> None:
    with pytest.raises(UsageError, match="level 'half' is unknown; use full, .*, K from 1"):
        extract(tmp_path / "b", suites=str(series), prompts=questions(*TEXTS), keep="half")
    with pytest.raises(UsageError, match="'nothing' is neither a known prompt set"):
        extract(tmp_path / "b", suites=str(series), prompts="nothing")
    with pytest.raises(SuiteError, match="nowhere"):
        extract(tmp_path / "b", suites="./nowhere", prompts=questions(*TEXTS))
    with pytest.raises(UsageError, match="No prompts"):
        extract(tmp_path / "b", suites=str(series), prompts=[])


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    without = "importlib.util.find_spec"
    monkeypatch.setattr(without, lambda name: None if name == "vllm" else find(name))
    assert choose_engine("auto") == "transformers"
    with pytest.raises(MissingExtraError, match=r'pip install "logitbank\[vllm\]"'):
        choose_engine("vllm")
    monkeypatch.setattr(without, lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "logitbank\[engine\]"'):
        choose_engine("auto")


@pytest.mark.usefixtures("backend")
def test_each_step_of_planning_is_an_event_before_it_begins(tmp_path: Path, series: Path) -> None:
    events: list[Event] = []
    prompts = questions(*TEXTS)
    extract(tmp_path / "b", suites=series, prompts=prompts, canary_every=0, on_event=events.append)
    steps = [event.text for event in events if isinstance(event, Preparing)]
    assert steps[0] == "reading suites and prompts"
    assert "tokenizing 3 prompts of mine" in steps
    assert steps.index("writing prompts into the bank") < len(steps) - 1
