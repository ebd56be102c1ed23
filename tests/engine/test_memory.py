"""Out of memory: a new engine has smaller batches, and nothing is lost or doubled."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from logitbank.engine.backends.hf.memory import is_out_of_memory, smaller
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.events import CheckpointFailed, Event, Job, Summary
from logitbank.engine.workers.serve import failure
from logitbank.store import Bank, verify
from tests.support.checkpoints import VOCAB
from tests.support.fakes import TEXTS, FakeBackend, InProcess, go, questions, write_series

OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


def test_what_an_engine_s_error_came_of_counts() -> None:
    outer = ValueError("the engine core failed")
    assert not is_out_of_memory(outer)
    outer.__cause__ = OUT_OF_MEMORY
    assert is_out_of_memory(outer)
    assert is_out_of_memory(ValueError("No available memory for the cache blocks. Try …"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("a shape"))


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
