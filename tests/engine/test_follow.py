"""Following a training whose folder changes whenever there is nothing to do."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.backends.protocol import EngineSettings, Loaded
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointFailed,
    Event,
    Summary,
    Waiting,
)
from logitbank.errors import DiskSpaceError, PromptError, SuiteError, UsageError, WeightsError
from logitbank.store import Bank
from tests.support.adapters import random_adapter
from tests.support.checkpoints import VOCAB, make_checkpoint
from tests.support.command import Call
from tests.support.fakes import FakeBackend, InProcess
from tests.support.growing import save_checkpoint, write_state

OPTIONS = (Option("male", " male"), Option("female", " female"))
PROMPTS = PromptSet("mine", (Prompt("p0", " the nurse said", OPTIONS, "male"),))
Act = Callable[[], object]


class Counted(InProcess):
    """Workers, counted."""

    made = 0

    def __init__(self, bank: Path, settings: EngineSettings, *share: Any) -> None:
        super().__init__(bank, settings, *share)
        Counted.made += 1


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    fake = FakeBackend(VOCAB)
    monkeypatch.setattr(Counted, "backend", fake)
    monkeypatch.setattr(Counted, "made", 0)
    monkeypatch.setattr("logitbank.engine.follow.WorkerProcess", Counted)
    monkeypatch.setattr("logitbank.engine.follow.LOOK_S", 0.0)
    monkeypatch.setattr("logitbank.engine.suites.complete.SETTLE_S", 0.0)
    return fake


def follow(
    tmp_path: Path, *acts: Act, on_event: Callable[[Event], None] = lambda _: None, **more: Any
) -> tuple[Summary, list[str]]:
    """What comes of following `out`, and what was waited for: an act at each wait."""
    todo, waits = list(acts), list[str]()

    def watched(event: Event) -> None:
        on_event(event)
        if isinstance(event, Waiting):
            waits.append(event.text.replace(f"{tmp_path}/", ""))
            todo.pop(0)()

    arguments: dict[str, Any] = {"prompts": PROMPTS, "engine": "transformers", "canary_every": 0}
    summary = extract(
        tmp_path / "b.zarr", follow=tmp_path / "out", on_event=watched, **arguments | more
    )
    assert not todo
    return summary, waits


def interrupt() -> None:
    raise KeyboardInterrupt


def steps(summary: Summary) -> list[int | None]:
    return [checkpoint.step for checkpoint in summary.done]


def test_each_checkpoint_is_run_by_one_engine_until_the_training_has_ended(
    tmp_path: Path, backend: FakeBackend
) -> None:
    out = tmp_path / "out"
    summary, waits = follow(
        tmp_path,
        out.mkdir,
        lambda: save_checkpoint(out, 10, max_steps=30),
        lambda: save_checkpoint(out, 20),
        lambda: write_state(out / "checkpoint-20", 20, 30),
        lambda: save_checkpoint(out, 30, max_steps=30),
    )
    assert waits == [
        "waiting for the folder out, which is not there yet",
        "waiting for the next checkpoint in out",
        "waiting for the next checkpoint in out; the last is step 10 of 30",
        "waiting for out/checkpoint-20: its trainer_state.json, which Trainer writes last, is not "
        "there",
        "waiting for the next checkpoint in out; the last is step 20 of 30",
    ]
    assert (steps(summary), summary.exit_code, summary.rows) == ([10, 20, 30], 0, 3)
    assert summary.notes == ["the training ended at step 30"]
    assert (backend.loads, Counted.made) == (["checkpoint-10", "checkpoint-20", "checkpoint-30"], 1)
    deposits = Bank.open(tmp_path / "b.zarr").deposits()
    assert {d.checkpoint.model for d in deposits} == {"out"}
    assert {d.spec.provenance["occasion"] for d in deposits} == {"follow"}
    assert [*tmp_path.glob(".*")] == []  # no lock is left


def test_what_the_bank_has_is_not_run_again(tmp_path: Path, backend: FakeBackend) -> None:
    out = tmp_path / "out"
    save_checkpoint(out, 10, max_steps=20)
    summary, _ = follow(tmp_path, interrupt)
    assert (steps(summary), summary.exit_code) == ([10], 3)
    save_checkpoint(out, 20, max_steps=20)
    summary, _ = follow(tmp_path)
    assert (steps(summary), backend.loads) == ([20], ["checkpoint-10", "checkpoint-20"])


def test_it_ends_at_the_step_that_is_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for step in (10, 20):
        save_checkpoint(out, step, max_steps=20)  # it had ended, and is taken up again
    later = lambda: [save_checkpoint(out, step, max_steps=40) for step in (30, 40)]  # noqa: E731
    summary, waits = follow(tmp_path, later, until=35)
    assert (steps(summary), summary.notes) == ([10, 20, 30], ["step 35 was reached"])
    (text,) = waits
    assert text.endswith("in out; the last is step 20, and step 35 is the end")


def test_steps_are_chosen_as_they_come(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_checkpoint(tmp_path / "out", step, max_steps=30)
    assert steps(follow(tmp_path, steps="0::20")[0]) == [20]
    with pytest.raises(UsageError, match="steps 'log' can be chosen only when all are there"):
        follow(tmp_path, steps="log")


def test_two_runs_end_when_both_have(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save_checkpoint(out / "seed1", 10, max_steps=10)
    save_checkpoint(out / "seed2", 5, max_steps=10)
    summary, waits = follow(tmp_path, lambda: save_checkpoint(out / "seed2", 10, max_steps=10))
    assert waits == ["waiting for the next checkpoint in out; the last is step 5 of 10"]
    assert [(c.run, c.run_seed, c.step) for c in summary.done] == [
        ("seed1", 1, 10),
        ("seed2", 2, 5),
        ("seed2", 2, 10),
    ]


def test_a_checkpoint_that_was_deleted_before_its_turn_is_a_note(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save_checkpoint(out, 10)

    def replaced() -> None:
        shutil.rmtree(out / "checkpoint-10")
        save_checkpoint(out, 20, max_steps=20)

    summary, _ = follow(tmp_path, replaced)
    assert (steps(summary), summary.exit_code) == ([20], 0)
    assert summary.notes[0] == (
        f"{out}/checkpoint-10 was deleted before it was run (save_total_limit, perhaps)"
    )


def test_a_checkpoint_that_is_deleted_while_it_is_loaded_is_a_note(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, load = tmp_path / "out", backend.load
    save_checkpoint(out, 10, max_steps=20)
    save_checkpoint(out, 20, max_steps=20)

    def deleted(folder: Path, *, checkpoint: str) -> Loaded:
        if folder.name == "checkpoint-10":
            shutil.rmtree(folder)
            raise WeightsError(f"{checkpoint}: {folder} holds no weights")
        return load(folder, checkpoint=checkpoint)

    monkeypatch.setattr(backend, "load", deleted)
    events: list[Event] = []
    summary, _ = follow(tmp_path, on_event=events.append)
    assert (steps(summary), summary.failed) == ([20], [])
    assert "checkpoint-10 was deleted before it was run" in summary.notes[0]
    assert not any(isinstance(event, CheckpointFailed) for event in events)


def test_a_checkpoint_of_another_model_fails_and_does_not_stop_the_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save_checkpoint(out, 10, max_steps=30)
    save_checkpoint(out, 20, max_steps=30, hidden_size=8)
    save_checkpoint(out, 30, max_steps=30)
    summary, _ = follow(tmp_path)
    assert (steps(summary), summary.exit_code) == ([10, 30], 1)
    assert summary.failed[0].message.startswith("out step 20: its hidden_size")


def test_what_never_became_complete_is_told_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save_checkpoint(out, 10)
    save_checkpoint(out, 20, max_steps=20)
    (out / "checkpoint-15").mkdir()
    notes = follow(tmp_path)[0].notes
    assert [note.replace(f"{out}/", "") for note in notes] == [
        "checkpoint-10 is left out: its trainer_state.json, which Trainer writes last, is not "
        "there",
        "checkpoint-15 is left out: it has no config.json",
        "the training ended at step 20",
    ]


def test_sigterm_ends_it_after_the_checkpoint_at_hand(tmp_path: Path) -> None:
    for step in (10, 20):
        save_checkpoint(tmp_path / "out", step, max_steps=20)

    def stop(event: Event) -> None:
        if isinstance(event, BlockCommitted):
            os.kill(os.getpid(), signal.SIGTERM)

    summary, _ = follow(tmp_path, on_event=stop)
    assert (steps(summary), summary.exit_code) == ([10], 3)


def test_a_full_disk_ends_it(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path, *, checkpoint: str) -> Loaded:
        raise DiskSpaceError(f"{checkpoint}: the disk is full")

    monkeypatch.setattr(backend, "load", full)
    save_checkpoint(tmp_path / "out", 10, max_steps=20)
    summary, _ = follow(tmp_path)
    assert (len(summary.failed), summary.interrupted, summary.exit_code) == (1, False, 1)


def test_two_cannot_follow_one_folder_into_one_bank(tmp_path: Path) -> None:
    def again() -> None:
        with pytest.raises(UsageError, match="another run follows .*/out into .*/b.zarr already"):
            follow(tmp_path)

    assert follow(tmp_path, again, interrupt)[0].exit_code == 3


def test_prompts_that_do_not_fit_the_model_end_it_at_the_first_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "out", 10, max_steps=20, architectures=["GPTNeoXForCausalLM"])
    masked = PromptSet("masks", (Prompt("p0", "the [MASK] said", OPTIONS, "male"),))
    with pytest.raises(PromptError):
        follow(tmp_path, prompts=masked)


def refusals(tmp_path: Path) -> Iterator[tuple[list[object], str]]:
    (tmp_path / "file").touch()
    yield [], "give either --suite or --follow"
    yield ["--suite", "pythia-14m", "--follow", "out"], "give either --suite or --follow"
    yield ["--suite", "pythia-14m", "--until", "5"], "--until ends what --follow began"
    yield ["--follow", "out", "--until", "0"], "--until 0 is no step that a training reaches"
    yield ["--follow", "out", "--dry-run"], "--dry-run needs all checkpoints"
    yield ["--follow", "out", "--shard", "1/2"], "--shard needs all checkpoints"
    yield ["--follow", tmp_path / "file"], "is a file; give the folder that the training saves to"


def test_calls_that_cannot_be_right_are_refused(tmp_path: Path, call: Call) -> None:
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"id": "a", "text": " he", "options": [" male", " female"]}\n')
    for arguments, message in refusals(tmp_path):
        code, _, err = call("extract", tmp_path / "b.zarr", "--prompts", prompts, *arguments)
        assert (code, message in err) == (2, True), err
    code, _, err = call("extract", tmp_path / "b.zarr", "--prompts", "nothing", "--follow", "out")
    assert (code, "nothing" in err) == (2, True)
    assert not (tmp_path / "b.zarr").exists()
    with pytest.raises(SuiteError, match="is a file"):
        extract(tmp_path / "b.zarr", follow=tmp_path / "file", prompts=PROMPTS)


def test_adapters_that_a_training_saves_are_runs_of_their_base(
    tmp_path: Path, backend: FakeBackend
) -> None:
    base = make_checkpoint(tmp_path / "tiny", seed=1, architecture="mistral")
    modules = {"model.layers.0.self_attn.q_proj": (128, 64)}

    def save(step: int, **fields: Any) -> None:
        folder = tmp_path / "out" / f"checkpoint-{step}"
        random_adapter(folder, base, modules, seed=step, **fields)
        write_state(folder, step, 30)

    summary, _ = follow(
        tmp_path, lambda: save(10), lambda: save(20, use_dora=True), lambda: save(30), base=base
    )
    assert [str(c) for c in summary.done] == ["tiny out step 10", "tiny out step 30"]
    (failure,) = summary.failed
    assert "use_dora 'True', which is not supported" in failure.message
    more: dict[str, Any] = {"base": base, "steps": "10,30", "dry_run": True}
    again = extract(tmp_path / "b.zarr", suite=tmp_path / "out", prompts=PROMPTS, **more)
    assert not again.plan.rows, "the names are those of a suite"
