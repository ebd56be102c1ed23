"""Out of memory: a new engine has smaller batches, and nothing is lost or doubled."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from logitbank.engine.backends import choose
from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.out_of_memory import is_out_of_memory, smaller
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.events import CheckpointFailed, Event, Job, Summary
from logitbank.engine.workers.serve import failure
from logitbank.errors import EngineError, WeightsError
from logitbank.store import Bank, verify
from tests.support.checkpoints import VOCAB, make_checkpoint
from tests.support.fakes import (
    TEXTS,
    FakeBackend,
    InProcess,
    go,
    questions,
    request_for,
    write_series,
)
from tests.support.resolved import make_plan

OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


def test_what_an_engine_s_error_came_of_counts() -> None:
    outer = ValueError("the engine core failed")
    assert not is_out_of_memory(outer)
    outer.__cause__ = OUT_OF_MEMORY
    assert is_out_of_memory(outer)
    assert is_out_of_memory(ValueError("No available memory for the cache blocks. Try …"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(ValueError("Free memory on device cuda:0 (0.3/79.2 GiB) on startup is"))
    assert not is_out_of_memory(ValueError("a shape"))


@pytest.mark.parametrize(
    ("error", "cause", "lacks_memory"),
    [
        (OUT_OF_MEMORY, None, True),
        (WeightsError("the weights do not fit"), OUT_OF_MEMORY, True),
        (WeightsError("the weights do not fit"), KeyError("lm_head"), False),
        (EngineError("the reference check was killed by signal 9 (out of memory?)"), None, False),
    ],
)
def test_a_lack_of_memory_is_one_outcome_wherever_it_happens(
    error: Exception, cause: Exception | None, lacks_memory: bool
) -> None:
    error.__cause__ = cause
    job = SimpleNamespace(checkpoint="c", folder=Path("c"), settings=EngineSettings("transformers"))
    outcome = failure(job, error)  # type: ignore[arg-type]
    assert outcome.out_of_memory == lacks_memory
    assert (outcome.cause == "engine") == lacks_memory


def test_a_gpu_s_batches_are_resolved_once_and_halved_is_halved(tmp_path: Path) -> None:
    series = write_series(tmp_path / "tiny", "step0")
    request = request_for(series, questions(*TEXTS))
    prepared = make_plan(request, None, series / "step0", gpu=True)
    assert (prepared.settings.max_batch_tokens, prepared.settings.max_sequences) == (8192, 256)
    half = smaller(prepared.settings)
    assert half is not None
    assert (half.max_batch_tokens, half.max_sequences) == (4096, 128)
    opened: list[EngineSettings] = []
    with patch.object(
        choose, "import_engine", lambda *_: lambda _, settings: opened.append(settings)
    ):
        choose.open_backend(series / "step0", half)
    assert opened == [half], "an engine takes them as they are"
    prepared = make_plan(replace(request, batch_tokens=512), None, series / "step0", gpu=True)
    assert prepared.settings.max_batch_tokens == 512


def test_a_lack_of_memory_while_packing_is_tried_is_no_reason_against_packing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    backend = TransformersBackend(folder, EngineSettings("transformers", max_length=16))

    def fails(*_: object, **__: object) -> None:
        raise OUT_OF_MEMORY

    monkeypatch.setattr(backend, "_run_all", fails)
    with pytest.raises(torch.OutOfMemoryError):
        backend.load(folder, checkpoint="c")


def test_batches_are_halved_down_to_a_floor() -> None:
    settings: EngineSettings | None = EngineSettings("vllm")
    sizes = []
    while settings is not None:
        sizes.append((settings.max_batch_tokens, settings.max_sequences))
        settings = smaller(settings)
    assert sizes == [(4096, 64), (2048, 32), (1024, 16), (512, 8), (256, 4)]


class _ShortOfMemory(InProcess):
    """Its engine starts with batches of 1,024 tokens and not with more."""

    asked: list[int] = []  # noqa: RUF012 (emptied by each test)

    def run(self, job: Job) -> Iterator[Event]:
        self.asked.append(job.settings.max_batch_tokens)
        if job.settings.max_batch_tokens > self.most:
            yield failure(job, OUT_OF_MEMORY)
        else:
            yield from super().run(job)

    most = 1024


def extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> Summary:
    monkeypatch.setattr(InProcess, "backend", FakeBackend(VOCAB))
    monkeypatch.setattr(_ShortOfMemory, "most", most)
    monkeypatch.setattr(_ShortOfMemory, "asked", [])
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", _ShortOfMemory)
    series = write_series(tmp_path / "tiny", "step0", "step1", "step2")
    return go(tmp_path / "b.zarr", series, questions(*TEXTS))


def test_an_engine_without_memory_is_started_again_with_smaller_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = extracted(tmp_path, monkeypatch, 1024)
    assert summary.complete
    assert _ShortOfMemory.asked == [4096, 2048, 1024, 1024, 1024], "the next begin with what fits"
    assert len(summary.notes) == 2
    assert "CUDA out of memory" in summary.notes[1]
    assert summary.notes[1].endswith(
        "; retrying the uncommitted blocks with batches of 1,024 tokens"
    )
    assert not verify(Bank.open(tmp_path / "b.zarr"))


def test_an_engine_that_runs_out_of_memory_at_every_size_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = extracted(tmp_path, monkeypatch, 100)
    assert summary.done == []
    assert _ShortOfMemory.asked[:5] == [4096, 2048, 1024, 512, 256]
    assert all(isinstance(f, CheckpointFailed) and f.out_of_memory for f in summary.failed)
    assert len(summary.failed) == 2, "nothing says that a third would fare better"
