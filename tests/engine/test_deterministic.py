"""--deterministic: the same bits whatever else is in a batch, or a clear error."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from logitbank.engine.backends.choose import import_engine
from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.engine_choice import choose_engine
from logitbank.errors import UsageError
from logitbank.store import Query
from tests.support.checkpoints import make_checkpoint
from tests.support.packed_driver import scored
from tests.support.preloaded import Preloaded, require_vllm


@pytest.fixture
def backend(tmp_path: Path) -> TransformersBackend:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    settings = EngineSettings("transformers", deterministic=True)
    backend = import_engine(settings.start)(folder, settings)
    assert isinstance(backend, TransformersBackend)
    backend.load(folder, checkpoint="tiny")
    return backend


def test_rows_are_the_same_bits_in_any_company(backend: TransformersBackend) -> None:
    rng = np.random.default_rng(0)
    drawn = [tuple(int(t) for t in rng.integers(1, 600, 20)) for _ in range(12)]
    queries = [Query(ids, at) for ids in drawn for at in (5, 12, 19)]
    together, _ = scored(backend, queries)
    alone = np.concatenate([scored(backend, [query])[0] for query in queries])
    backwards = scored(backend, queries[::-1])[0][::-1]
    assert np.array_equal(together, alone)
    assert np.array_equal(together, backwards)
    assert torch.are_deterministic_algorithms_enabled()
    assert backend.describe()["deterministic"] == "one sequence at a time"


def test_without_a_gpu_vllm_is_refused_and_auto_takes_transformers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_vllm()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match="need an NVIDIA GPU .*Use --engine transformers"):
        choose_engine("vllm", deterministic=True)
    assert choose_engine("auto", deterministic=True) == "transformers"
    assert choose_engine("auto") == "vllm"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert choose_engine("auto", deterministic=True) == "vllm"


def start(folder: Path, settings: EngineSettings) -> str:
    try:
        import_engine(settings.start)(folder, settings)
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.vllm
def test_a_worker_without_the_device_reports_a_fix(tmp_path: Path, preloaded: Preloaded) -> None:
    require_vllm()
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    settings = replace(EngineSettings("vllm"), deterministic=True)
    told = preloaded.run(
        "vllm", tmp_path, "tests.engine.test_deterministic:start", folder, settings
    )
    assert "has no batch-invariant kernels for this device" in told
    assert "--engine transformers" in told
