"""A named precision is what multiplies, in every process; and one that is not there is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from logitbank import extract
from logitbank.engine.backends.precision import require_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineName, EngineSettings
from logitbank.engine.backends.simulated import round_to_tf32, tensor_cores
from logitbank.engine.backends.torch_precision import (
    float32_products,
    in_float32,
    multiply_as,
    products_provenance,
)
from logitbank.engine.gpus.cards import cards_of, visible_cards
from logitbank.engine.gpus.refusals import check_precision
from logitbank.engine.workers.worker_process import worker_environment
from logitbank.errors import DeviceError, UsageError
from logitbank.store import Query
from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded, require_vllm

GPUS = {"T4": "7.5", "A100": "8.0", "H100": "9.0"}
TF32 = EngineSettings("transformers", compute_dtype="tf32")
A_LITTLE = 1 + 2.0**-11  # float32 has it, TF32 has 1 in its place


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
def test_where_vllm_chooses_triton_it_multiplies_as_is_asked(
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


def test_torch_multiplies_as_is_asked_and_convolves_so_too() -> None:
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


def test_rounding_is_to_the_nearest_of_ten_bits() -> None:
    given = [1 + 2.0**-10, A_LITTLE, A_LITTLE + 2.0**-23, -1 - 3 * 2.0**-11, 0.0, np.inf, -np.inf]
    want = [1 + 2.0**-10, 1.0, 1 + 2.0**-10, -1 - 2 * 2.0**-10, 0.0, np.inf, -np.inf]
    assert round_to_tf32(torch.tensor(given)).tolist() == want
    assert round_to_tf32(torch.tensor([np.nan])).isnan().all()


@torch.inference_mode()
def test_every_product_is_rounded_in_the_simulation_but_those_asked_for_in_float32() -> None:
    one, little = torch.eye(2), torch.eye(2) * A_LITTLE
    products = {
        "linear": lambda: linear(little, one),
        "matmul": lambda: little @ one,
        "addmm": lambda: torch.addmm(torch.zeros(2), one, little),
        "bmm": lambda: torch.bmm(little[None], one[None]),
        "einsum": lambda: torch.einsum("ab,bc->ac", one, little),
        "attention": lambda: scaled_dot_product_attention(0 * one, one, 0 * one + A_LITTLE),
        "onednn": lambda: torch.ops.mkldnn._linear_pointwise(little, one, None, "none", [], ""),
    }
    if not torch.backends.mkldnn.is_available():
        del products["onednn"]
    for name, product in products.items():
        assert product().flatten()[0].item() == A_LITTLE, name
        with tensor_cores():
            assert product().flatten()[0].item() == 1, name
            with in_float32():
                assert product().flatten()[0].item() == A_LITTLE, name
    low = little.bfloat16()
    with tensor_cores():
        assert (low @ low).dtype == torch.bfloat16
    assert float32_products() == "ieee"


def test_the_head_of_transformers_is_float32_where_its_body_has_tf32(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from logitbank.engine.backends.hf.backend import TransformersBackend

    folder = make_checkpoint(tmp_path / "step0", seed=1)
    head = load_file(folder / "model.safetensors")["embed_out.weight"].double().numpy()
    backend = TransformersBackend(folder, EngineSettings("transformers", hidden=True))
    backend.load(folder, checkpoint="c")
    rows: list[np.ndarray] = []
    states: list[np.ndarray] = []

    def take(_: object, logits: torch.Tensor, hidden: torch.Tensor | None, *__: object) -> None:
        assert hidden is not None
        rows.append(logits[0].double().numpy())
        states.append(hidden[0].double().numpy())

    query = Query((5, 6, 7, 8), 3)
    backend.score([query], take)
    with tensor_cores():
        backend.score([query], take)
    assert np.abs(states[1] - states[0]).max() > 1e-5, "the body was rounded"
    for row, state in zip(rows, states, strict=True):
        assert np.abs(row - head @ state).max() < 1e-6
    described = backend.describe()
    assert (described["compute_dtype"], described["head_dtype"]) == ("float32", "float32")
    assert "float32_products" not in described, "a processor has one way"


def test_the_canary_measures_what_tf32_may_lose_and_less_than_bfloat16(tmp_path: Path) -> None:
    from logitbank.engine.backends.plain_logits import evaluate
    from logitbank.engine.workers.canary import Reference

    folder = make_checkpoint(tmp_path / "step0", seed=1)
    query = Query((9, 30, 4, 11, 200, 17), 5)
    ((exact, tf32),) = evaluate(folder, [query], TF32)
    ((again, bfloat16),) = evaluate(folder, [query], replace(TF32, compute_dtype="bfloat16"))
    assert np.array_equal(exact, again)
    assert 0 < tf32 < bfloat16 / 2
    assert float32_products() == "ieee"
    reference = Reference(exact, 0.01)
    assert reference.allowed("tf32") == pytest.approx(0.05)
    assert "plain transformers in tf32, simulated on the CPU, differs" in reference.limit("tf32")


@pytest.fixture
def gpu(request: pytest.FixtureRequest, nvidia_smi: object, tmp_path: Path) -> str:
    nvidia_smi(f"0, GPU-1, NVIDIA {request.param}, 580.65.06, {GPUS[request.param]}")  # type: ignore[operator]
    return str(request.param)


def test_a_cpu_has_no_tf32_and_nothing_is_looked_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitbank.engine.backends.hf.backend import TransformersBackend

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    none, told = tmp_path / "none", "^a CPU has no TF32, .*; use --compute-dtype float32, or"
    with pytest.raises(UsageError, match=told):
        extract(tmp_path / "b.zarr", suite=none, prompts="nothing.csv", compute_dtype="tf32")
    with pytest.raises(DeviceError, match=told):
        TransformersBackend(none, replace(TF32, device="cpu"))
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize("gpu", ["T4"], indirect=True)
def test_a_gpu_before_ampere_has_no_tf32(gpu: str) -> None:
    told = "NVIDIA T4 has no TF32: it has compute capability 7.5, not 8.0"
    with pytest.raises(UsageError, match=told):
        check_precision(TF32, {})
    with pytest.raises(DeviceError, match="this GPU has no TF32: .* 7.5"):
        require_tf32("tf32", (7, 5))
    check_precision(EngineSettings("vllm"), {})


@pytest.mark.parametrize("gpu", ["A100", "H100"], indirect=True)
def test_from_ampere_on_tf32_runs_unless_something_else_decides(gpu: str) -> None:
    check_precision(TF32, {})
    require_tf32("tf32", (8, 0))
    with pytest.raises(UsageError, match="NVIDIA_TF32_OVERRIDE=0 decides over .*: unset it"):
        check_precision(TF32, {"NVIDIA_TF32_OVERRIDE": "0"})
    vllm = replace(TF32, engine="vllm", deterministic=True)
    with pytest.raises(UsageError, match="output head in TF32, too; use --engine transformers"):
        check_precision(vllm, {})
    check_precision(replace(vllm, engine="transformers"), {})


def test_a_precision_of_another_name_is_refused() -> None:
    wrong: ComputeDtype = "fp8"  # type: ignore[assignment]
    told = "compute dtype 'fp8': use float32, tf32, bfloat16, float16"
    with pytest.raises(UsageError, match=told):
        check_precision(EngineSettings("vllm", compute_dtype=wrong), {})


def test_cards_are_those_that_the_environment_names(nvidia_smi: object) -> None:
    lines = ["0, GPU-aa, NVIDIA A, 580.1, 9.0", "1, GPU-bb, NVIDIA B, 580.1, [N/A]"]
    nvidia_smi("\n".join(lines))  # type: ignore[operator]
    both = cards_of("\n".join(lines))
    assert [card.capability for card in both] == [(9, 0), None]
    assert visible_cards({}) == both
    assert visible_cards({"CUDA_VISIBLE_DEVICES": "1"}) == both[1:]
    assert visible_cards({"CUDA_VISIBLE_DEVICES": "GPU-a"}) == both[:1]
    assert visible_cards({"CUDA_VISIBLE_DEVICES": "MIG-3"}) == both, "a part of one of them"
    assert visible_cards({"CUDA_VISIBLE_DEVICES": ""}) == ()
