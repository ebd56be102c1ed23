"""Real workers on tiny checkpoints: what is bad, what is killed, what is full, and what resumes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Prompt
from logitbank.engine.workers.events import BlockCommitted, Event, Note, Planned
from logitbank.store import Bank, CheckpointId, verify
from tests.support.checkpoints import VOCAB, make_checkpoint, make_series
from tests.support.fakes import FakeBackend, InProcess
from tests.support.paths import ROOT
from tests.support.preloaded import Preloaded, require_vllm
from tests.support.run_driver import (
    BLOCK_ROWS,
    LARGE_BLOCK_ROWS,
    PROMPTS,
    assert_same,
    go,
    questions,
)

BLOCKS = PROMPTS // BLOCK_ROWS
DEADLINE_S = 600.0


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_series(tmp_path_factory.mktemp("runs") / "tiny", steps=(0, 1))


@pytest.fixture(scope="module")
def full_run(series: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded) -> Bank:
    """The bank of a run that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "b.zarr"
    with preloaded.workers("transformers"):
        assert go(path, series, canary_every=1, block_rows=PROMPTS).complete
    return Bank.open(path)


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S:.0f} s: {what}"
        time.sleep(0.01)


def workers(bank: Path) -> list[int]:
    """Processes that serve this bank."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            if b"logitbank.engine.workers.serve" in words and str(bank).encode() in words:
                found.append(int(entry.name))
    return found


def committed(bank: Path) -> list[Path]:
    """Commits of single blocks, of deposits that are not sealed."""
    return [p for p in bank.glob("tiny/main/*/*/commits/*.json") if p.stem.isdecimal()]


def logprobs(bank: Bank, step: int) -> np.ndarray:
    (deposit,) = bank.deposits(CheckpointId("tiny", step=step))
    return deposit.logprobs()


@contextlib.contextmanager
def driver(bank: Path, series: Path) -> Iterator[subprocess.Popen[str]]:
    """An extraction in a process group of its own, as a shell would start it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.run_driver", str(bank), str(series)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        stream: IO[str] | None = process.stderr
        assert stream is not None
        stream.close()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def test_the_reference_check_agrees_and_its_difference_is_in_the_bank(full_run: Bank) -> None:
    for deposit in full_run.deposits():
        difference = deposit.spec.provenance["canary_difference"]
        assert isinstance(difference, float)
        assert 0 <= difference < 1e-3


@pytest.mark.whole
def test_ctrl_c_then_a_killed_run_then_the_same_command_complete_the_bank(
    tmp_path: Path, series: Path, full_run: Bank, preloaded: Preloaded
) -> None:
    path = tmp_path / "b.zarr"
    with driver(path, series) as process:
        until(lambda: len(committed(path)) >= 2, "two blocks")
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 3
    assert "Run the same command to resume" in error
    assert "Traceback" not in error
    assert workers(path) == []
    assert not verify(Bank.open(path))
    first = len(committed(path))
    assert 2 <= first < BLOCKS

    with driver(path, series) as process:
        until(lambda: len(committed(path)) >= first + 2, "two more blocks")
        process.kill()
        process.wait()
        until(lambda: workers(path) == [], "the orphaned worker's end")
    (deposit,) = Bank.open(path).deposits()
    logs = [log.read_text() for log in path.glob("runs/*.jsonl")]
    assert sorted(('"Begin"' in log, '"End"' in log) for log in logs) == [
        (True, False),  # killed
        (True, True),  # interrupted
    ]
    done = deposit.committed()
    assert first + 2 <= len(done) < BLOCKS
    assert not verify(Bank.open(path))
    before = {
        name: (deposit.path / name).read_bytes() for name in (f"logprobs/c/{b}/0" for b in done)
    }

    with preloaded.workers("transformers"):
        summary = go(path, series)
    assert summary.complete
    assert summary.rows == 2 * PROMPTS - len(done) * BLOCK_ROWS
    assert {name: (deposit.path / name).read_bytes() for name in before} == before
    assert_same(path, full_run)
    assert not list(path.rglob(".*")), "nothing is left of the killed writers"


@pytest.mark.usefixtures("quick_workers")
def test_a_killed_worker_is_replaced_and_nothing_is_missing(
    tmp_path: Path, series: Path, full_run: Bank, preloaded: Preloaded
) -> None:
    path = tmp_path / "b.zarr"
    killed: list[int] = []
    notes: list[str] = []

    def kill_once(event: Event) -> None:
        if isinstance(event, BlockCommitted) and not killed:
            killed.extend(preloaded.running())
            os.kill(killed[0], signal.SIGKILL)
        if isinstance(event, Note):
            notes.append(event.text)

    summary = go(path, series, on_event=kill_once)
    assert len(killed) == 1
    assert summary.complete
    assert [c.step for c in summary.done] == [0, 1]
    (note,) = notes
    assert "tiny step 0: the engine's process was killed by signal 9" in note
    assert note.endswith("retrying the uncommitted blocks with batches of 2,048 tokens")
    assert_same(path, full_run)


@pytest.mark.usefixtures("quick_workers")
def test_a_disk_that_fills_in_the_middle_stops_the_run_and_hurts_nothing(
    small_disk: Path, series: Path, full_run: Bank
) -> None:
    path, filler = small_disk / "b.zarr", small_disk / "filler"

    def fill(event: Event) -> None:
        if isinstance(event, BlockCommitted) and not filler.exists():
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))

    summary = go(path, series, on_event=fill)
    (failure,) = summary.failed
    assert failure.message.startswith(f"The disk of {path}/tiny/main/0/")
    assert "is full" in failure.message
    assert not verify(Bank.open(path))
    filler.unlink()
    assert go(path, series).complete
    assert_same(path, full_run)


@pytest.mark.whole
@pytest.mark.usefixtures("quick_workers")
def test_bad_checkpoints_are_listed_and_the_others_run(tmp_path: Path) -> None:
    series = make_series(tmp_path / "tiny", steps=(0, 1, 2, 3))
    _poison(series / "step1" / "model.safetensors")
    (series / "step2" / "model.safetensors").unlink()
    marker = _ship_code(series / "step3", tmp_path)
    summary = go(tmp_path / "b.zarr", series, block_rows=LARGE_BLOCK_ROWS)
    assert [c.step for c in summary.done] == [0, 3]
    poisoned, empty = (f.message for f in summary.failed)
    assert poisoned.startswith("tiny step 1: prompt 'p")
    assert "of 'mine': " in poisoned
    assert "of 640 logits are not finite" in poisoned
    assert "step2 contains no weights" in empty
    assert not marker.exists(), "code that ships with a model does not run"
    assert not verify(Bank.open(tmp_path / "b.zarr"))
    make_checkpoint(series / "step1", seed=2)
    make_checkpoint(series / "step2", seed=3)
    again = go(tmp_path / "b.zarr", series, block_rows=LARGE_BLOCK_ROWS)
    assert [c.step for c in again.done] == [1, 2], "nothing of the bad weights was committed"
    assert not verify(Bank.open(tmp_path / "b.zarr"))


def _poison(file: Path) -> None:
    tensors = load_file(file)
    name = next(n for n in tensors if "embed_out" in n or "lm_head" in n)
    tensors[name][5] = torch.nan
    save_file(tensors, file, metadata={"format": "pt"})


def _ship_code(folder: Path, tmp_path: Path) -> Path:
    """Give a checkpoint a module that leaves a mark when it is imported."""
    marker = tmp_path / "ran"
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {
        "AutoConfig": "own.OwnConfig",
        "AutoModelForCausalLM": "own.OwnModel",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\n")
    return marker


@pytest.mark.vllm
def test_vllm_fills_a_bank_once(
    tmp_path: Path, series: Path, full_run: Bank, preloaded: Preloaded
) -> None:
    require_vllm()
    arguments = {
        "suites": str(series), "prompts": questions(), "dtype": "float32", "engine": "vllm",
        "keep": "hidden",
    }  # fmt: skip
    with preloaded.workers("vllm"):
        summary = extract(tmp_path / "b.zarr", **arguments)  # type: ignore[arg-type]
    assert summary.complete
    bank = Bank.open(tmp_path / "b.zarr")
    assert set(bank.info()["engine"]) == {"vllm"}
    assert set(bank.info()["keep"]) == {"hidden"}
    assert_same(tmp_path / "b.zarr", full_run)
    assert extract(tmp_path / "b.zarr", **arguments).plan.rows == 0  # type: ignore[arg-type]
    assert EngineSettings("vllm").trust_remote_code is False


@pytest.mark.vllm
def test_the_default_engine_is_the_one_that_has_less_to_run(
    tmp_path: Path, series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_vllm()
    monkeypatch.setattr(InProcess, "backend", FakeBackend(VOCAB))
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    plan = partial(extract, tmp_path / "b.zarr", suites=str(series), dry_run=True)
    told: list[Planned] = []

    def take(event: Event) -> None:
        told.extend([event] if isinstance(event, Planned) else [])

    shared = [Prompt(f"p{n}", f"The nurse said that she was tired and {n}") for n in range(20)]
    plan(prompts=PromptSet("shared", tuple(shared)), on_event=take)
    plan(prompts=PromptSet("alone", (Prompt("p", "The nurse said"),)), on_event=take)
    assert [event.engine for event in told] == ["transformers", "vllm"]
    assert told[1].notes == ()
