"""What the callback of a training does where something is not as it should be."""

import logging
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logitbank.engine.backends.protocol import Loaded
from logitbank.engine.callback import BankCallback
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.workers.events import Event
from logitbank.errors import PromptError, UsageError
from logitbank.store import Bank
from tests.support.checkpoints import VOCAB, write_tokenizer
from tests.support.fakes import FakeBackend, InProcess
from tests.support.growing import save_checkpoint

OPTIONS = (Option("male", " male"), Option("female", " female"))
PROMPTS = PromptSet("mine", (Prompt("p0", " the nurse said", OPTIONS, "male"),))


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    fake = FakeBackend(VOCAB)
    monkeypatch.setattr(InProcess, "backend", fake)
    monkeypatch.setattr("logitbank.engine.callback.WorkerProcess", InProcess)
    return fake


def callback(tmp_path: Path, **more: Any) -> BankCallback:
    arguments: dict[str, Any] = {"prompts": PROMPTS, "canary_every": 0}
    return BankCallback(tmp_path / "b.zarr", **arguments | more)


def save(callback: BankCallback, tmp_path: Path, step: int, *, main: bool = True) -> None:
    arguments = SimpleNamespace(output_dir=str(tmp_path / "out"))
    callback.on_save(arguments, SimpleNamespace(global_step=step, is_world_process_zero=main), None)


def test_each_save_is_run_by_the_main_process_alone(tmp_path: Path, backend: FakeBackend) -> None:
    ours = callback(tmp_path, model="mine", run="seed3")
    for step in (10, 20):
        save_checkpoint(tmp_path / "out", step, max_steps=30)
        save(ours, tmp_path, step, main=False)
        save(ours, tmp_path, step)
    ours.on_train_end(None, None, None)
    assert backend.loads == ["checkpoint-10", "checkpoint-20"]
    deposits = Bank.open(tmp_path / "b.zarr").deposits()
    assert [str(d.checkpoint) for d in deposits] == ["mine seed3 step 10", "mine seed3 step 20"]
    assert {d.checkpoint.run_seed for d in deposits} == {3}


def test_what_cannot_be_run_is_logged_and_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, out = callback(tmp_path), tmp_path / "out"
    save_checkpoint(out, 10)
    (out / "checkpoint-10" / "config.json").unlink()
    save_checkpoint(out, 40)
    with caplog.at_level(logging.WARNING, logger="logitbank"):
        for step in (10, 40):
            save(ours, tmp_path, step)
    (warning,) = caplog.messages
    assert warning.startswith(f"{out}/checkpoint-10 is not in {tmp_path}/b.zarr: ")
    assert "has no config.json" in warning
    assert [c.step for c in ours.summary.done] == [40]


def test_an_engine_that_fails_is_logged(
    tmp_path: Path,
    backend: FakeBackend,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "vocab", 7)
    save_checkpoint(tmp_path / "out", 10)
    with caplog.at_level(logging.WARNING, logger="logitbank"):
        save(ours := callback(tmp_path), tmp_path, 10)
    assert "its head has 7 outputs" in caplog.messages[0]
    assert ours.summary.exit_code == 1


def test_ctrl_c_is_the_training_s(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Path, *, checkpoint: str) -> Loaded:
        raise KeyboardInterrupt

    monkeypatch.setattr(backend, "load", interrupted)
    save_checkpoint(tmp_path / "out", 10)
    with pytest.raises(KeyboardInterrupt):
        save(callback(tmp_path), tmp_path, 10)


def test_sigterm_is_the_training_s(tmp_path: Path) -> None:
    handlers = set()

    def watched(_: Event) -> None:
        handlers.add(signal.getsignal(signal.SIGTERM))

    save_checkpoint(tmp_path / "out", 10)
    save(callback(tmp_path, on_event=watched), tmp_path, 10)
    assert handlers == {signal.getsignal(signal.SIGTERM)}


def begin(callback: BankCallback, tmp_path: Path, *, tokenizer: bool) -> None:
    from transformers import AutoTokenizer, GPTNeoXConfig

    class GPTNeoXForCausalLM:  # as a config names it
        config = GPTNeoXConfig(vocab_size=VOCAB, max_position_embeddings=64)

    write_tokenizer(tmp_path / "tokenizer")
    ours = AutoTokenizer.from_pretrained(tmp_path / "tokenizer") if tokenizer else None
    arguments = SimpleNamespace(output_dir=str(tmp_path / "out"))
    model = GPTNeoXForCausalLM()
    callback.on_train_begin(arguments, None, None, model=model, processing_class=ours)


def test_prompts_are_compared_with_the_model_before_the_first_step(tmp_path: Path) -> None:
    begin(callback(tmp_path), tmp_path, tokenizer=True)
    masked = PromptSet("masks", (Prompt("p0", "the [MASK] said", OPTIONS, "male"),))
    with pytest.raises(PromptError):
        begin(callback(tmp_path, prompts=masked), tmp_path, tokenizer=True)
    long = PromptSet("long", (Prompt("p0", " the nurse said" * 40, OPTIONS, "male"),))
    with pytest.raises(PromptError, match="the model takes at most 64"):
        begin(callback(tmp_path, prompts=long), tmp_path, tokenizer=True)
    with pytest.raises(UsageError, match="'nothing'"):
        callback(tmp_path, prompts="nothing")
    assert not (tmp_path / "b.zarr").exists()


def test_a_training_that_saves_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give Trainer\(processing_class=tokenizer\)"):
        begin(callback(tmp_path), tmp_path, tokenizer=False)
    write_tokenizer(tmp_path / "out")
    begin(callback(tmp_path), tmp_path, tokenizer=False)


def test_it_has_every_event_of_trainer_and_nothing_else(tmp_path: Path) -> None:
    ours = callback(tmp_path)
    assert ours.on_step_begin(None, None, None, model=None) is None
    with pytest.raises(AttributeError, match="BankCallback has no attribute 'nothing'"):
        _ = ours.nothing


def test_importing_it_imports_no_transformers() -> None:
    code = "import sys; from logitbank import BankCallback; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_training_of_adapters_is_refused_as_it_begins(tmp_path: Path) -> None:
    arguments = SimpleNamespace(output_dir=str(tmp_path / "out"))
    model = SimpleNamespace(peft_config={"default": "LoRA"})
    with pytest.raises(UsageError, match="saves adapters alone; leave it out, and run `logitbank"):
        callback(tmp_path).on_train_begin(arguments, None, None, model=model)
