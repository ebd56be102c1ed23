"""A named precision is what multiplies, in every process; and one that is not there is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from logitbank import extract
from logitbank.engine.backends.precision import require_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineName, EngineSettings
from logitbank.engine.backends.torch_precision import (
    float32_products,
    in_float32,
    multiply_as,
    products_provenance,
)
from logitbank.engine.plan.engine_choice import check_precision, choose_engine
from logitbank.engine.workers.worker_process import worker_environment
from logitbank.errors import DeviceError, UsageError
from logitbank.store import Query
from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded, require_vllm

TF32 = EngineSettings("transformers", compute_dtype="tf32")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    matmul, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolutions


@pytest.mark.vllm
@pytest.mark.parametrize("attention", ["decoder", "encoder_only"])
@pytest.mark.parametrize(
    ("asked", "triton", "torch_s"), [("float32", "ieee", "highest"), ("tf32", "tf32", "high")]
)
def test_triton_matmul_has_the_requested_precision(
    asked: str, triton: str, torch_s: str, attention: str, preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    case = "tests.support.precision_cases:chosen_on_cuda"
    backends, products, vllm_s = preloaded.run("vllm", tmp_path, case, asked, attention)
    assert backends[0] == "TRITON_ATTN"
    assert (products, vllm_s) == (triton, torch_s)


@pytest.mark.vllm
def test_output_heads_of_vllm_are_float32_in_tf32_too(preloaded: Preloaded, tmp_path: Path) -> None:
    require_vllm()
    case = "tests.support.precision_cases:products_of_body_and_head"
    assert preloaded.run("vllm", tmp_path, case) == ["tf32", "ieee", "tf32"]


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
@pytest.mark.parametrize(
    ("asked", "triton"),
    [("float32", "ieee"), ("bfloat16", "ieee"), ("float16", "ieee"), ("tf32", "tf32")],
)
def test_workers_have_it_before_they_import_anything(
    engine: EngineName, asked: ComputeDtype, triton: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32x3")  # left over from other work
    environment = worker_environment(EngineSettings(engine, compute_dtype=asked))
    assert environment["TRITON_F32_DEFAULT"] == triton
    assert environment.get("NVIDIA_TF32_OVERRIDE") == (None if asked == "tf32" else "0")


def test_torch_matmul_and_convolution_have_the_requested_precision() -> None:
    multiply_as("tf32")
    assert (float32_products(), torch.backends.cudnn.conv.fp32_precision) == ("tf32", "tf32")
    assert products_provenance(torch.device("cuda")) == {"float32_products": "tf32"}
    with in_float32():
        assert float32_products() == "ieee"
    assert float32_products() == "tf32"
    for asked in ("float32", "bfloat16", "float16"):
        multiply_as("tf32")
        multiply_as(asked)
        assert float32_products() == "ieee"
        assert torch.backends.cudnn.conv.fp32_precision != "tf32", "torch's own default is"
    assert products_provenance(torch.device("cuda")) == {"float32_products": "ieee"}
    assert products_provenance(torch.device("cpu")) == {}


def test_the_head_of_transformers_is_float32_where_its_body_is_not(
    tmp_path: Path,
) -> None:
    from safetensors.torch import load_file

    from logitbank.engine.backends.hf.backend import TransformersBackend

    folder = make_checkpoint(tmp_path / "step0", seed=1)
    head = load_file(folder / "model.safetensors")["embed_out.weight"].bfloat16().double().numpy()
    settings = EngineSettings("transformers", hidden=True, compute_dtype="bfloat16")
    backend = TransformersBackend(folder, settings)
    backend.load(folder, checkpoint="c")
    rows: list[np.ndarray] = []
    states: list[np.ndarray] = []

    def take(_: object, logits: torch.Tensor, hidden: torch.Tensor | None, *__: object) -> None:
        assert hidden is not None
        rows.append(logits[0].double().numpy())
        states.append(hidden[0].double().numpy())

    query = Query((5, 6, 7, 8), 3)
    backend.score([query], take)
    for row, state in zip(rows, states, strict=True):
        assert np.abs(row - head @ state).max() < 1e-6
    described = backend.describe()
    assert (described["compute_dtype"], described["head_dtype"]) == ("bfloat16", "float32")
    assert "float32_products" not in described, "a processor has one way"


def test_the_head_of_transformers_multiplies_in_float32_where_its_body_has_tf32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitbank.engine.backends.hf import forward
    from logitbank.engine.backends.hf.backend import TransformersBackend

    folder = make_checkpoint(tmp_path / "step0", seed=1)
    backend = TransformersBackend(folder, EngineSettings("transformers"))
    backend.load(folder, checkpoint="c")
    assert backend._model is not None
    products: list[str] = []
    honest = forward.linear

    def linear(*given: torch.Tensor) -> torch.Tensor:
        products.append(float32_products())
        return honest(*given)

    monkeypatch.setattr(forward, "linear", linear)
    backend._model.register_forward_pre_hook(lambda *_: products.append(float32_products()))
    multiply_as("tf32")
    backend.score([Query((5, 6, 7, 8), 3)], lambda *_: None)
    assert products == ["tf32", "ieee"]
    assert float32_products() == "tf32"


def test_the_reference_measures_what_tf32_may_lose_and_less_than_bfloat16(tmp_path: Path) -> None:
    from logitbank.engine.backends.plain_logits import evaluate
    from logitbank.engine.workers.reference_check import Reference

    folder = make_checkpoint(tmp_path / "step0", seed=1)
    query = Query((9, 30, 4, 11, 200, 17), 5)
    ((exact, tf32),) = evaluate(folder, [query], TF32)
    ((again, bfloat16),) = evaluate(folder, [query], replace(TF32, compute_dtype="bfloat16"))
    assert np.array_equal(exact, again)
    assert 0 < tf32 < bfloat16 / 2, "by float16, which has as many bits"
    reference = Reference(exact, 0.01)
    assert reference.allowed("tf32") == pytest.approx(0.05)


def test_tf32_on_a_cpu_is_refused_before_any_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitbank.engine.backends.hf.backend import TransformersBackend

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    none, told = tmp_path / "none", "^A CPU has no TF32"
    with pytest.raises(DeviceError, match=told):
        extract(tmp_path / "b.zarr", suites=none, prompts="nothing.csv", compute_dtype="tf32")
    with pytest.raises(DeviceError, match=told):
        TransformersBackend(none, TF32)
    assert not (tmp_path / "b.zarr").exists()


def test_a_gpu_has_tf32_from_ampere_on_unless_something_else_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DeviceError, match=r"This GPU has no TF32: .* 7\.5"):
        require_tf32("tf32", (7, 5))
    require_tf32("tf32", (8, 0))
    gpu = {"CUDA_VISIBLE_DEVICES": "0"}
    check_precision("tf32", gpu)
    with pytest.raises(UsageError, match="NVIDIA_TF32_OVERRIDE=0"):
        check_precision("tf32", gpu | {"NVIDIA_TF32_OVERRIDE": "0"})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    require_vllm()
    with pytest.raises(UsageError, match="would also use TF32 in the LM head. Use --engine trans"):
        choose_engine("vllm", compute_dtype="tf32", deterministic=True)
    assert choose_engine("auto", compute_dtype="tf32", deterministic=True) == "transformers"


def test_a_precision_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'fp8' is invalid: use float32, tf32, bfloat16, float16"):
        extract(tmp_path / "b", suites=tmp_path, prompts="winobias", compute_dtype="fp8")
