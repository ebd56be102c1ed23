"""Out of memory: batches become smaller, nothing is lost or doubled, and what was used is told."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.hf.memory import is_out_of_memory, smaller
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.events import CheckpointFailed, Event, Job, Summary
from logitbank.engine.workers.serve import failure
from logitbank.errors import EngineError
from logitbank.store import Bank, Query, verify
from tests.support.checkpoints import VOCAB, make_checkpoint
from tests.support.fakes import TEXTS, FakeBackend, InProcess, go, questions, write_series

MESSAGES = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    "cpu": RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    ),
    "python": MemoryError(),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("memory") / "step0", seed=1)


def loaded(checkpoint: Path) -> TransformersBackend:
    backend = TransformersBackend(checkpoint, EngineSettings("transformers", max_batch_tokens=400))
    backend.load(checkpoint, checkpoint="tiny")
    return backend


def limit(backend: TransformersBackend, tokens: int, error: BaseException) -> list[int]:
    """Let the model fail above a number of tokens; returns the sizes of its calls."""
    calls: list[int] = []
    assert backend._model is not None

    def before(_module: object, _args: object, inputs: dict[str, torch.Tensor]) -> None:
        calls.append(inputs["input_ids"].numel())
        if calls[-1] > tokens:
            raise error

    backend._model.register_forward_pre_hook(before, with_kwargs=True)
    return calls


def scored(backend: TransformersBackend, queries: list[Query]) -> tuple[np.ndarray, list[int]]:
    rows, seen = np.full((len(queries), VOCAB), np.nan, np.float32), []

    def take(indices: list[int], logits: torch.Tensor, _: object) -> None:
        seen.extend(indices)
        rows[indices] = logits.numpy()

    backend.score(queries, take)  # type: ignore[arg-type]
    return rows, seen


def drawn(*lengths: int) -> list[Query]:
    rng = np.random.default_rng(0)
    texts = [tuple(int(t) for t in rng.integers(1, 600, n)) for n in lengths]
    return [Query(ids, len(ids) - 1) for ids in texts]


@pytest.mark.parametrize("kind", MESSAGES)
def test_batches_become_smaller_and_every_row_comes_once(checkpoint: Path, kind: str) -> None:
    queries = drawn(*[20] * 30, *[10] * 30)
    expected, _ = scored(loaded(checkpoint), queries)
    backend = loaded(checkpoint)
    calls = limit(backend, 120, MESSAGES[kind])
    rows, seen = scored(backend, queries)
    assert sorted(seen) == [*range(60)]
    np.testing.assert_allclose(rows, expected, atol=1e-4)
    failed = [size for size in calls if size > 120]
    assert failed == calls[: len(failed)], "not tried larger again"
    assert all(after <= before / 2 for before, after in pairwise(failed)), "halved until it fits"
    assert backend.describe()["max_batch_tokens"] == failed[-1] // 2


def test_a_single_sequence_that_does_not_fit_is_one_clear_error(checkpoint: Path) -> None:
    backend = loaded(checkpoint)
    limit(backend, 15, MESSAGES["cuda"])
    with pytest.raises(EngineError, match="one sequence of 20 tokens does not fit into the memory"):
        scored(backend, drawn(20, 20, 20))
    rows, _ = scored(backend, drawn(10, 10))
    assert np.isfinite(rows).all(), "others go on"


def test_other_errors_are_not_taken_for_a_lack_of_memory(checkpoint: Path) -> None:
    backend = loaded(checkpoint)
    limit(backend, 15, RuntimeError("device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side"):
        scored(backend, drawn(20, 20))


def test_what_an_engine_s_error_came_of_counts() -> None:
    outer = ValueError("the engine core failed")
    assert not is_out_of_memory(outer)
    outer.__cause__ = MESSAGES["cuda"]
    assert is_out_of_memory(outer)
    assert is_out_of_memory(ValueError("No available memory for the cache blocks. Try …"))
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
            yield failure(job, MESSAGES["cuda"])
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
        "; retrying what is not committed with batches of 1,024 tokens"
    )
    assert not verify(Bank.open(tmp_path / "b.zarr"))


def test_an_engine_that_fits_at_no_size_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = extracted(tmp_path, monkeypatch, 100)
    assert summary.done == []
    assert _ShortOfMemory.asked[:5] == [4096, 2048, 1024, 512, 256]
    assert all(isinstance(f, CheckpointFailed) and f.out_of_memory for f in summary.failed)
    assert len(summary.failed) == 2, "nothing says that a third would fare better"


def test_a_deposit_says_with_which_batches_it_was_made(
    tmp_path: Path, series: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[Any] = [4096, 2048, 2048, 2048, 2048, 2048]
    monkeypatch.setattr(
        backend, "describe", lambda: {"engine": "fake", "max_batch_tokens": sizes.pop(0)}
    )
    summary = go(tmp_path / "b.zarr", series, questions(*TEXTS))
    told = [
        d.spec.provenance["max_batch_tokens"] for d in Bank.open(tmp_path / "b.zarr").deposits()
    ]
    assert told == [4096, 2048, 2048]
    assert summary.notes == ["tiny step 0: out of memory; batches have 2,048 tokens from here on"]
