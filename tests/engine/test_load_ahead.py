"""The next checkpoint is read while one is scored, and loaded while its end is written."""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from logitbank.engine.backends.protocol import EngineSettings, Loaded
from logitbank.engine.weights import digests
from logitbank.engine.weights.digests import ContentDigest, DigestsAhead
from logitbank.engine.weights.weights import stream_weights
from logitbank.engine.workers import runner as runner_module
from logitbank.engine.workers.events import Job, NextCheckpoint, Summary
from logitbank.engine.workers.load_ahead import LoadAhead, LoadedAheadError
from logitbank.engine.workers.serve import failure
from logitbank.errors import WeightsError
from logitbank.store import Bank, CheckpointId, DepositWriter, Query, verify
from tests.support.checkpoints import VOCAB
from tests.support.fakes import TEXTS, FakeBackend, InProcess, go, questions, write_series

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.arange(4, dtype=torch.float16)}
STEPS = ["step0", "step1", "step2"]


def digest(folder: Path, known: Mapping[str, str] = {}) -> str:
    content = ContentDigest(known)
    for name, tensor in stream_weights(folder):
        content.update(name, tensor)
    return content.hexdigest()


def test_digests_ahead_are_those_of_the_load(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    ahead = DigestsAhead(tmp_path)
    ahead._thread.join()
    known = ahead.take(tmp_path)
    assert known.keys() == WEIGHTS.keys()
    assert digest(tmp_path, known) == digest(tmp_path)
    part = {"b": known["b"]}
    assert digest(tmp_path, part) == digest(tmp_path), "the rest is hashed when it is loaded"


def test_two_tensors_are_hashed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    both, real = threading.Barrier(2, timeout=60), digests._tensor_digest

    def after_both_have_begun(tensor: torch.Tensor) -> str:
        both.wait()
        return real(tensor)

    monkeypatch.setattr(digests, "_tensor_digest", after_both_have_begun)
    ahead = DigestsAhead(tmp_path)
    ahead._thread.join()
    assert ahead.take(tmp_path).keys() == WEIGHTS.keys()


def test_digests_ahead_of_files_that_changed_meanwhile_are_not_used(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    ahead = DigestsAhead(tmp_path)
    ahead._thread.join()
    save_file({name: tensor + 1 for name, tensor in WEIGHTS.items()}, tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "model.safetensors")
    assert ahead.take(tmp_path) == {}
    other = tmp_path / "other"
    other.mkdir()
    ahead = DigestsAhead(tmp_path)
    ahead._thread.join()
    assert ahead.take(other) == {}


@pytest.mark.parametrize("content", [None, b"no weights"])
def test_a_problem_of_the_files_is_left_to_the_load(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    ahead = DigestsAhead(tmp_path)
    ahead._thread.join()
    assert ahead.take(tmp_path) == {}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    backend = FakeBackend(VOCAB)
    monkeypatch.setattr(InProcess, "backend", backend)
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    return backend


def extracted(tmp_path: Path, **changes: Any) -> Summary:
    series = write_series(tmp_path / "tiny", *STEPS)
    return go(tmp_path / "b.zarr", series, questions(*TEXTS), **changes)


def assert_right(tmp_path: Path, steps: tuple[int, ...]) -> None:
    """The deposits of these steps have the logits of their own checkpoints."""
    bank, model = Bank.open(tmp_path / "b.zarr"), FakeBackend(VOCAB)
    assert not verify(bank)
    assert [deposit.checkpoint.step for deposit in bank.deposits() if deposit.sealed] == [*steps]
    for deposit in bank.deposits():
        if deposit.sealed:
            model.load(Path(f"step{deposit.checkpoint.step}"), checkpoint="")
            queries = bank.query_set(deposit.query_set).queries
            expected = np.stack([model.logits(query) for query in queries])
            shifted = expected - expected.max(axis=1, keepdims=True)
            expected = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            np.testing.assert_allclose(deposit.logprobs(), expected, atol=1e-5)


def test_a_checkpoint_is_loaded_while_the_one_before_is_sealed(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seal waits here for the next load: without overlap it would wait in vain."""
    loaded = {step: threading.Event() for step in [*STEPS, "step3"]}
    loaded["step3"].set()
    load, seal = backend.load, DepositWriter.seal
    waited = list[bool]()

    def signals(folder: Path, **options: Any) -> Loaded:
        result = load(folder, **options)
        loaded[folder.name].set()
        return result

    def waits(writer: DepositWriter) -> None:
        if not writer.deposit.sealed:
            following = f"step{(writer.deposit.checkpoint.step or 0) + 1}"
            waited.append(loaded[following].wait(600))
        seal(writer)

    monkeypatch.setattr(backend, "load", signals)
    monkeypatch.setattr(DepositWriter, "seal", waits)
    assert extracted(tmp_path).complete
    assert waited == [True] * 3
    assert backend.loads == STEPS, "each once"
    assert_right(tmp_path, (0, 1, 2))


def test_the_next_load_has_the_digests_and_the_time_is_that_of_its_own_checkpoint(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Mapping[str, str]] = {}
    load = backend.load

    def recorded(folder: Path, *, checkpoint: str, digests: Mapping[str, str] = {}) -> Loaded:
        given[folder.name] = digests
        return load(folder, checkpoint=checkpoint)

    monkeypatch.setattr(backend, "load", recorded)
    monkeypatch.setattr(DigestsAhead, "take", lambda self, folder: {"of": folder.name})
    summary = extracted(tmp_path)
    assert summary.complete
    assert given == {"step0": {}, "step1": {"of": "step1"}, "step2": {"of": "step2"}}
    assert set(summary.spent) == {"swap", "score", "write", "wait"}
    assert sum(summary.spent.values()) <= summary.seconds


def test_a_checkpoint_that_cannot_be_loaded_ahead_fails_by_itself(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = backend.load

    def refuses(folder: Path, **options: Any) -> Loaded:
        result = load(folder, **options)
        if folder.name == "step1":
            raise WeightsError("step 1: these weights are damaged")
        return result

    monkeypatch.setattr(backend, "load", refuses)
    summary = extracted(tmp_path)
    (failed,) = summary.failed
    assert (failed.checkpoint.step, failed.cause) == (1, "load")
    assert failed.message == "step 1: these weights are damaged"
    assert backend.loads == STEPS
    assert_right(tmp_path, (0, 2))


def test_a_last_block_that_fails_does_not_touch_the_next_checkpoint(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = backend.logits

    def broken(query: Query) -> np.ndarray:
        return logits(query) * (np.nan if backend._folder == "step0" else 1)

    monkeypatch.setattr(backend, "logits", broken)
    summary = extracted(tmp_path)
    (failed,) = summary.failed
    assert (failed.checkpoint.step, failed.cause) == (0, "checkpoint")
    assert "not finite" in failed.message
    assert backend.loads == STEPS
    assert_right(tmp_path, (1, 2))


def test_a_checkpoint_of_another_config_is_left_to_another_engine(
    tmp_path: Path, backend: FakeBackend
) -> None:
    series = write_series(tmp_path / "tiny", "step0")
    other = write_series(tmp_path / "other", "step1", rope_theta=7.0) / "step1"
    job = job_of(0, series / "step0", following=NextCheckpoint(CheckpointId("m", step=1), other))
    ahead = LoadAhead()
    ahead.load(job, backend)
    assert backend.loads == []
    assert ahead.take(job_of(1, other)) is None


def job_of(step: int, folder: Path, following: NextCheckpoint | None = None) -> Job:
    from logitbank.engine.weights.config_identity import config_fields

    settings = EngineSettings("transformers")
    id, config = CheckpointId("m", step=step), config_fields(folder)
    return Job(id, folder, (), VOCAB, VOCAB, {}, settings, config, following)


def test_what_was_loaded_for_another_job_is_not_used(tmp_path: Path, backend: FakeBackend) -> None:
    series = write_series(tmp_path / "tiny", *STEPS)
    following = NextCheckpoint(CheckpointId("m", step=1), series / "step1")
    ahead = LoadAhead()
    ahead.load(job_of(0, series / "step0", following), backend)
    assert ahead.take(job_of(0, series / "step0")) is None, "the last one is retried"
    ahead.load(job_of(0, series / "step0", following), backend)
    loaded = ahead.take(job_of(1, series / "step1"))
    assert loaded is not None
    assert loaded.weights == "weights of step1"
    assert ahead.take(job_of(1, series / "step1")) is None, "once"


@pytest.mark.parametrize(
    ("error", "lacks_memory"),
    [(WeightsError("damaged"), False), (torch.OutOfMemoryError("CUDA out of memory"), True)],
)
def test_an_engine_that_failed_for_another_job_is_started_again(
    tmp_path: Path, backend: FakeBackend, error: Exception, lacks_memory: bool
) -> None:
    series = write_series(tmp_path / "tiny", *STEPS)
    following = NextCheckpoint(CheckpointId("m", step=1), series / "step1")

    def fails(*_: object, **__: object) -> Loaded:
        raise error

    ahead = LoadAhead()
    ahead.load(job_of(0, series / "step0", following), SimpleNamespace(load=fails))  # type: ignore[arg-type]
    job = job_of(2, series / "step2")
    with pytest.raises(LoadedAheadError) as raised:
        ahead.take(job)
    outcome = failure(job, raised.value)
    assert (outcome.cause, outcome.out_of_memory) == ("crash", lacks_memory), "retried once"
    assert "failed to load" in outcome.message


def test_workers_announce_different_checkpoints_and_the_last_are_taken_by_whoever_is_idle() -> None:
    suite = SimpleNamespace(compatibility=SimpleNamespace(check=lambda folder: None))
    checkpoints: list[Any] = [SimpleNamespace(index=i, id=i, suite=suite) for i in range(4)]
    tasks = [runner_module._Task(each, unit=None) for each in checkpoints]  # type: ignore[arg-type]
    runner: Any = runner_module.Runner.__new__(runner_module.Runner)
    runner._lock, runner._todo, runner._taken = threading.Lock(), [*tasks[2:]], {*tasks[:2]}
    runner._stopping = SimpleNamespace(requested=False)
    runner._fetcher = SimpleNamespace(fetched=lambda index: Path(f"step{index}"))
    one, two = (SimpleNamespace(ready=lambda: True) for _ in range(2))
    assert runner._following(tasks[0], one).folder == Path("step2")
    assert runner._following(tasks[1], two).folder == Path("step3")
    assert runner._following(tasks[0], one).folder == Path("step2"), "the same again"
    assert runner._next_task(two) is tasks[3]
    assert runner._next_task(two) is tasks[2], "nothing else is left"
    runner._todo = [tasks[0]]
    assert runner._following(tasks[0], one) is None, "a part of the same checkpoint"
    runner._fetcher.fetched = lambda index: None
    assert runner._following(tasks[1], one) is None, "it is not downloaded"
