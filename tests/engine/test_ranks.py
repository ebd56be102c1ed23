"""One model over several processes: vLLM's ranks, on this machine's processor."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.extract import extract
from logitbank.engine.plan.checks import check_ranks
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.share import Share
from logitbank.engine.plan.spread import Spread
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.run import run
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.workers.events import BlockCommitted, Event, Note, Summary
from logitbank.engine.workers.ranks import ranks
from logitbank.engine.workers.ranks.requests import Loss
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId, verify
from tests.engine.test_parity import queries
from tests.support.checkpoints import Architecture, make_checkpoint, make_series
from tests.support.fakes import FakeBackend
from tests.support.marks import long
from tests.support.preloaded import FAULT, FOLLOWER, Preloaded, require_vllm
from tests.support.run_driver import questions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="vLLM's processes")


@pytest.fixture
def workers(preloaded: Preloaded) -> Iterator[Preloaded]:
    """Workers of vLLM, and their followers, start at once; at the end, none is left."""
    require_vllm()
    with preloaded.workers("vllm"):
        yield preloaded
        end = time.monotonic() + 30
        while left := preloaded.running("vllm"):
            assert time.monotonic() < end, f"processes are left: {left}"
            time.sleep(0.05)


def settings_of(count: int, **others: Any) -> EngineSettings:
    sizes = {"max_length": 256, "max_batch_tokens": 128, "max_sequences": 8}
    return EngineSettings("vllm", tensor_parallel_size=count, **sizes | others)


def logits(
    workers: Preloaded, tmp_path: Path, settings: EngineSettings, folders: list[Path]
) -> list[np.ndarray]:
    function = "tests.support.engine_driver:engine"
    found: list[np.ndarray] = workers.run("vllm", tmp_path, function, settings, folders, queries())
    return found


@pytest.mark.vllm
@pytest.mark.whole
@pytest.mark.parametrize(
    ("architecture", "vocab", "others"),
    [
        long("gpt_neox", 640, {}),
        ("llama_tied", 640, {}),  # one head of keys and values, held by both
        ("gpt2", 651, {}),  # padded
        long("olmo2", 640, {}),
        long("gemma2", 640, {"compute_dtype": "bfloat16"}),
        long("qwen3", 640, {"hidden": True}),
        ("gpt_neox", 640, {"many_positions": True}),
    ],
)
def test_two_ranks_give_the_logits_of_one(
    architecture: Architecture,
    vocab: int,
    others: dict[str, Any],
    tmp_path: Path,
    workers: Preloaded,
) -> None:
    for step in (0, 1):
        make_checkpoint(
            tmp_path / f"step{step}", seed=step + 1, architecture=architecture, vocab=vocab
        )
    folders = [tmp_path / f"step{step}" for step in (0, 1, 0)]
    one, two = (
        logits(workers, tmp_path, settings_of(count, **others), folders) for count in (1, 2)
    )
    assert np.abs(one[0] - one[1]).max() > 1, "the checkpoints must differ"
    tolerance = 1e-4 if "compute_dtype" not in others else 0.5
    for expected, found in zip(one, two, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.vllm
@pytest.mark.whole
@pytest.mark.parametrize(
    "fault",
    [
        "wrong model.norm.weight",  # held by both
        long("wrong model.embed_tokens.weight"),  # cut
        "stale model.layers.1.self_attn.k_proj.weight",  # repacked, and held by both
        long("stale model.layers.0.mlp.down_proj.weight"),
    ],
)
def test_wrong_weights_of_one_rank_are_found(
    fault: str, tmp_path: Path, workers: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="llama_tied")
    monkeypatch.setenv(FOLLOWER, "tests.support.played_follower")
    monkeypatch.setenv(FAULT, fault)
    with pytest.raises(AssertionError, match="step0: after the swap the engine's weights are not"):
        logits(workers, tmp_path, settings_of(2), [folder])


def few() -> PromptSet:
    """Some prompts of different lengths."""
    return PromptSet("mine", questions().prompts[:40])


def go(
    bank: Path, series: Path, count: int, on_event: Callable[[Event], None] = lambda _: None
) -> Summary:
    settings = EngineSettings("vllm", canary_every=1, tensor_parallel_size=count)
    extraction = Extraction(
        resolve_suite(str(series)), (few(),), settings, dtype="float32", block_rows=8
    )
    return run(bank, extraction, on_event=on_event)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks") / "tiny"
    return make_series(folder, steps=(0, 1), architecture="llama_tied")


@pytest.fixture(scope="module")
def of_one(
    series: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Preloaded
) -> dict[CheckpointId, np.ndarray]:
    """Rows of each checkpoint in the bank of one rank."""
    require_vllm()
    path = tmp_path_factory.mktemp("one") / "b.zarr"
    with preloaded.workers("vllm"):
        assert go(path, series, 1).complete
    assert "tensor_parallel_size" not in Bank.open(path).deposits()[0].spec.provenance
    return rows(path)


def rows(path: Path) -> dict[CheckpointId, np.ndarray]:
    assert not verify(Bank.open(path))
    return {deposit.checkpoint: deposit.logprobs() for deposit in Bank.open(path).deposits()}


def assert_near(path: Path, expected: dict[CheckpointId, np.ndarray]) -> None:
    found = rows(path)
    assert found.keys() == expected.keys()
    for checkpoint, one in expected.items():
        np.testing.assert_allclose(found[checkpoint], one, rtol=0, atol=1e-4)


@pytest.mark.vllm
@pytest.mark.whole
def test_the_bank_of_two_ranks_is_that_of_one(
    series: Path, tmp_path: Path, of_one: dict[CheckpointId, np.ndarray], workers: Preloaded
) -> None:
    path = tmp_path / "b.zarr"
    assert go(path, series, 2).complete
    assert_near(path, of_one)
    for deposit in Bank.open(path).deposits():
        provenance = deposit.spec.provenance
        assert provenance["tensor_parallel_size"] == 2
        difference = provenance["canary_difference"]
        assert isinstance(difference, float)
        assert difference < 1e-3


@pytest.mark.vllm
@pytest.mark.whole
def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on(
    series: Path, tmp_path: Path, of_one: dict[CheckpointId, np.ndarray], workers: Preloaded
) -> None:
    notes, killed = [], list[int]()

    def kill(event: Event) -> None:
        if isinstance(event, BlockCommitted) and not killed:
            _, follower = workers.running("vllm")  # in the order in which they were started
            killed.append(follower)
            os.kill(follower, signal.SIGKILL)
        if isinstance(event, Note):
            notes.append(event.text)

    assert go(tmp_path / "b.zarr", series, 2, kill).complete
    assert killed
    how = "the process of rank 1, of 2 that hold the model, was killed by signal 9 (out of memory?)"
    again = "trying it once more with batches of 2,048 tokens"
    assert any(how in note and again in note for note in notes), notes
    assert_near(tmp_path / "b.zarr", of_one)


@pytest.mark.vllm
@pytest.mark.whole
def test_a_rank_without_memory_gives_all_smaller_batches(
    series: Path,
    tmp_path: Path,
    of_one: dict[CheckpointId, np.ndarray],
    workers: Preloaded,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(FOLLOWER, "tests.support.played_follower")
    monkeypatch.setenv(FAULT, "short")
    path = tmp_path / "b.zarr"
    summary = go(path, series, 2)
    assert summary.complete
    (note,) = (note for note in summary.notes if "out of memory" in note)
    assert "rank 1: MemoryError: this device is out of memory; trying it once more with" in note
    assert_near(path, of_one)
    assert {d.spec.provenance["max_batch_tokens"] for d in Bank.open(path).deposits()} == {2048}


@pytest.mark.vllm
@pytest.mark.whole
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_end_with_their_worker(
    number: signal.Signals, series: Path, tmp_path: Path, workers: Preloaded
) -> None:
    """That none is left is looked at by the fixture."""
    ended = list[int]()

    def end(event: Event) -> None:
        if isinstance(event, BlockCommitted) and not ended:
            worker, follower = workers.running("vllm")
            os.kill(follower, signal.SIGTERM)  # a scheduler's reaches every process of a job
            os.kill(worker, number)
            ended.append(worker)

    summary = go(tmp_path / "b.zarr", series, 2, end)
    assert ended
    assert summary.complete == (number == signal.SIGKILL), "who is asked to stop does not go on"
    assert not verify(Bank.open(tmp_path / "b.zarr"))


def test_who_waits_for_a_rank_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranks, "FOLLOWER", "tests.support.silent_follower")
    monkeypatch.setattr(ranks, "open_backend", lambda *_: FakeBackend())
    losses: list[Loss] = []
    told = threading.Event()

    def lost(loss: Loss) -> None:
        losses.append(loss)
        told.set()

    with capfd.disabled():
        group = ranks.Ranks(settings_of(3), lost)
    backend = group.open(tmp_path, settings_of(3))
    assert backend.load(tmp_path / "step0", checkpoint="step0").vocab == 640
    with pytest.raises(RuntimeError, match="the process of rank [12], of 3 that hold the model"):
        backend.score(queries(), lambda *_: None)
    assert told.wait(10)
    assert losses[0].died
    assert "ended with status 7" in losses[0].message
    backend.close()
    assert not group._meeting.exists()


def test_an_engine_whose_ranks_are_out_of_step_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranks, "FOLLOWER", "tests.support.silent_follower")
    monkeypatch.setattr(ranks, "open_backend", lambda *_: FakeBackend())
    losses: list[Loss] = []
    with capfd.disabled():
        group = ranks.Ranks(settings_of(2), losses.append)
    backend = group.open(tmp_path, settings_of(2))
    with pytest.raises(RuntimeError, match="rank 1: refused"):
        backend.load(tmp_path, checkpoint="refused")
    assert losses[0] == Loss("rank 1: refused")
    assert not group._meeting.exists(), "who is told of a loss ends its process"
    with pytest.raises(RuntimeError, match="not in step any more"):
        backend.load(tmp_path, checkpoint="step0")
    backend.close()


def test_each_worker_has_the_gpus_of_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,9")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [Share(i, 2, 2).environment() for i in range(2)] == [
        {"CUDA_VISIBLE_DEVICES": "4,5", "OMP_NUM_THREADS": "2"},
        {"CUDA_VISIBLE_DEVICES": "6,7", "OMP_NUM_THREADS": "2"},
    ]
    assert Spread.here(workers="auto", tensor_parallel_size=2).workers == 2
    with pytest.raises(
        UsageError, match="3 workers of --tensor-parallel-size 2 need 6 GPUs, and 5"
    ):
        Spread.here(workers=3, tensor_parallel_size=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert Share(0, 2, 2).environment() == {"OMP_NUM_THREADS": "2"}
    assert Share(0, 1, 2).environment() == {"OMP_NUM_THREADS": "4"}


def config(heads: int, key_value_heads: int | None = None) -> ModelConfig:
    shape = ("llama", 64, 2, heads, 640)
    return ModelConfig(640, 128, shape, "llama", key_value_heads=key_value_heads)


def test_what_cannot_be_spread_over_gpus_is_refused() -> None:
    for count in (1, 2, 3, 6):
        check_ranks(settings_of(count), config(12, 3 if count in (3, 6) else 4))
    with pytest.raises(
        UsageError, match=r"has 12 attention heads, which .* use 1, 2, 3, 4, 6, 12$"
    ):
        check_ranks(settings_of(5), config(12))
    with pytest.raises(
        UsageError, match="12 attention heads, 4 of keys and values, .* use 1, 2, 4, 12$"
    ):
        check_ranks(settings_of(3), config(12, 4))
    with pytest.raises(UsageError, match="needs vLLM, and transformers is to run this"):
        check_ranks(EngineSettings("transformers", tensor_parallel_size=2), config(12))
    with pytest.raises(UsageError, match="for models that predict next tokens alone"):
        check_ranks(settings_of(2, task="masked"), config(12))
    with pytest.raises(UsageError, match="--tensor-parallel-size 0 is no number of GPUs"):
        Spread.here(workers="auto", tensor_parallel_size=0)


def test_an_engine_that_has_one_device_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--engine transformers runs a model on one GPU"):
        extract(
            tmp_path / "b.zarr",
            suite=tmp_path / "absent",
            prompts="absent",
            engine="transformers",
            tensor_parallel_size=2,
        )


@pytest.mark.vllm
def test_a_model_whose_heads_cannot_be_shared_starts_no_engine(tmp_path: Path) -> None:
    require_vllm()
    make_series(tmp_path / "tiny", steps=(0,))
    settings = EngineSettings("vllm", tensor_parallel_size=3)
    extraction = Extraction(resolve_suite(str(tmp_path / "tiny")), (few(),), settings)
    with pytest.raises(UsageError, match="the model has 2 attention heads, which .* use 1, 2$"):
        run(tmp_path / "b.zarr", extraction, dry_run=True)
