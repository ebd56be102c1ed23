"""Watching a folder that changes whenever there is nothing to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine import watch
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.workers.events import Event, Summary, Waiting
from logitbank.errors import UsageError
from logitbank.store import Bank
from tests.support.checkpoints import VOCAB
from tests.support.fakes import FakeBackend, InProcess, write_series

OPTIONS = (Option("male", " male"), Option("female", " female"))
PROMPTS = PromptSet("mine", (Prompt("p0", " the nurse said", OPTIONS, "male"),))
Act = Callable[[], object]


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    fake = FakeBackend(VOCAB)
    monkeypatch.setattr(InProcess, "backend", fake)
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    monkeypatch.setattr(watch, "LOOK_S", 0.0)
    return fake


def watched(tmp_path: Path, *acts: Act, **more: Any) -> tuple[Summary, list[str]]:
    """What comes of watching `out`, and what was waited for: an act at each wait, then Ctrl-C."""
    todo, waits = list(acts), list[str]()
    (tmp_path / "out").mkdir(exist_ok=True)

    def seen(event: Event) -> None:
        if isinstance(event, Waiting):
            waits.append(event.text)
            if not todo:
                raise KeyboardInterrupt
            todo.pop(0)()

    arguments: dict[str, Any] = {"prompts": PROMPTS, "engine": "transformers", "canary_every": 0}
    summary = extract(
        tmp_path / "b.zarr", suites=tmp_path / "out", watch=True, on_event=seen, **arguments | more
    )
    return summary, waits


def steps(summary: Summary) -> list[int | None]:
    return [checkpoint.step for checkpoint in summary.done]


def nothing() -> None:
    pass


def test_each_checkpoint_is_run_once_until_ctrl_c(tmp_path: Path, backend: FakeBackend) -> None:
    out = tmp_path / "out"
    summary, waits = watched(
        tmp_path,
        lambda: write_series(out, "checkpoint-10"),
        nothing,  # at the second look, step 10 is still as it was
        lambda: write_series(out, "checkpoint-20"),
        nothing,
    )
    assert (steps(summary), summary.exit_code, summary.rows) == ([10, 20], 3, 2)
    assert backend.loads == ["checkpoint-10", "checkpoint-20"]
    assert {d.checkpoint.model for d in Bank.open(tmp_path / "b.zarr").deposits()} == {"out"}
    assert all(text.startswith("waiting for the next checkpoint in ") for text in waits)
    assert "no checkpoint in" in waits[0]


def test_what_is_marked_as_stable_is_run_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    checkpoint = write_series(out, "checkpoint-10") / "checkpoint-10"
    assert steps(watched(tmp_path)[0]) == []  # it has been seen once
    (checkpoint / "STABLE").touch()
    assert steps(watched(tmp_path)[0]) == [10]


def test_weights_that_are_cut_short_are_waited_for(tmp_path: Path) -> None:
    out = tmp_path / "out"
    weights = write_series(out, "checkpoint-10") / "checkpoint-10" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert steps(watched(tmp_path, nothing, nothing)[0]) == []
    weights.write_bytes(whole)
    assert steps(watched(tmp_path, nothing)[0]) == [10]
    assert steps(watched(tmp_path, nothing)[0]) == []  # the bank has it


def test_a_checkpoint_that_fails_is_not_tried_again_and_stops_no_other(
    tmp_path: Path, backend: FakeBackend
) -> None:
    out = tmp_path / "out"
    write_series(out, "checkpoint-10", "checkpoint-20")
    weights = out / "checkpoint-10" / "config.json"
    weights.write_text(weights.read_text().replace("gpt_neox", "gpt2"))
    summary, _ = watched(tmp_path, nothing, nothing, steps="20,10")
    assert (steps(summary), len(summary.failed)) in (([20], 1), ([10], 1))


def test_calls_that_cannot_be_right_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for more, message in (
        ({"steps": "log"}, "--steps log"),
        ({"dry_run": True}, "--dry-run and --watch"),
        ({"suites": "pythia-160m"}, "pythia-160m is not a folder"),
    ):
        given: dict[str, Any] = {"suites": tmp_path / "out", "engine": "transformers", **more}
        with pytest.raises(UsageError, match=message):
            extract(tmp_path / "b.zarr", prompts=PROMPTS, watch=True, **given)


def test_a_slurm_array_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ID": 1, "MIN": 0, "MAX": 1, "COUNT": 2}.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    with pytest.raises(UsageError, match="--watch"):
        watched(tmp_path)
