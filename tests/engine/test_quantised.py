"""Quantised checkpoints: what they stand for, by hand and by others' code, run by both engines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from logitbank import compare
from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.engine.extract import extract
from logitbank.engine.weights.variants.checkpoint import checkpoint_weights
from logitbank.engine.weights.variants.quantised import scheme_of
from logitbank.errors import LogitbankError, WeightsError
from logitbank.store import Bank
from logitbank.store.format.schema import Query
from tests.support.adapters import random_adapter
from tests.support.checkpoints import make_checkpoint
from tests.support.engine_driver import engine, reference
from tests.support.preloaded import Preloaded, require_vllm
from tests.support.quantised import (
    METHODS,
    compressed,
    fp8,
    quantised_checkpoint,
    set_quantisation,
)

TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("q") / "tiny", seed=3, architecture="mistral")


def queries() -> list[Query]:
    rng = np.random.default_rng(5)
    drawn = [tuple(int(t) for t in rng.integers(1, 600, n)) for n in (1, 3, 9, 30, 60)]
    return [Query(ids, len(ids) - 1) for ids in drawn]


def restored(fields: dict[str, Any], parts: dict[str, torch.Tensor], folder: Path) -> torch.Tensor:
    """The one matrix of a folder with these tensors."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"quantization_config": fields}))
    save_file({f"m.{end}": part for end, part in parts.items()}, folder / "model.safetensors")
    weights = checkpoint_weights(folder, base=None, legacy_weights=False)
    tensors = dict(weights.stream())
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == weights.shapes()
    return tensors["m.weight"]


def expect(tensor: torch.Tensor, values: list[list[float]]) -> None:
    assert tensor.dtype == torch.float32
    torch.testing.assert_close(tensor, torch.tensor(values, dtype=torch.float32), rtol=0, atol=0)


def test_gptq_by_hand(tmp_path: Path) -> None:
    # 8 bits: four integers of a column in an int32, lowest first; four outputs' zeros less one.
    parts = {
        "qweight": torch.tensor([[0x04030201, 0x08070605, 0, 0x7F000000]], dtype=torch.int32),
        "qzeros": torch.tensor([[0x01020000]], dtype=torch.int32),
        "scales": torch.tensor([[1.0, 0.5, 2.0, 1.0]], dtype=torch.float16),
        "g_idx": torch.zeros(4, dtype=torch.int32),
    }
    expect(
        restored({"quant_method": "gptq", "bits": 8, "group_size": -1}, parts, tmp_path / "a"),
        [
            [0, 1, 2, 3],  # less 1
            [2, 2.5, 3, 3.5],  # 5 … 8 less 1, halved
            [-6, -6, -6, -6],  # 0 less 3, doubled
            [-2, -2, -2, 125],
        ],
    )
    later = {"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"}
    assert restored(later, parts, tmp_path / "b")[0].tolist() == [1, 2, 3, 4]


def test_gptq_columns_may_belong_to_groups_in_any_order(tmp_path: Path) -> None:
    parts = {
        "qweight": torch.full((1, 4), 0x02020202, dtype=torch.int32),
        "qzeros": torch.tensor([[0], [0x01010101]], dtype=torch.int32),
        "scales": torch.tensor([[1.0] * 4, [10.0] * 4], dtype=torch.float16),
        "g_idx": torch.tensor([0, 1, 0, 1], dtype=torch.int32),
    }
    found = restored({"quant_method": "gptq", "bits": 8, "group_size": -1}, parts, tmp_path / "a")
    expect(found, [[1, 0, 1, 0]] * 4)


def test_awq_by_hand(tmp_path: Path) -> None:
    # Of the nibbles 7 6 5 4 3 2 1 0, lowest first, outputs are 0 2 4 6 1 3 5 7.
    parts = {
        "qweight": torch.tensor([[0x76543210]], dtype=torch.int32),
        "qzeros": torch.tensor([[0x00000001]], dtype=torch.int32),
        "scales": torch.tensor([[1, 1, 1, 1, 1, 1, 1, 2]], dtype=torch.float16),
    }
    found = restored(
        {"quant_method": "awq", "bits": 4, "group_size": 1, "version": "GEMM"},
        parts,
        tmp_path / "a",
    )
    # outputs 0 … 7 are the nibbles 0, 4, 1, 5, 2, 6, 3, 7
    expect(found, [[-1], [4], [1], [5], [2], [6], [3], [14]])


def test_float8_by_hand(tmp_path: Path) -> None:
    stored = torch.tensor([[1.0, -2.0, 4.0], [0.5, 448.0, 0.0]]).to(torch.float8_e4m3fn)
    one = {"weight": stored, "weight_scale": torch.tensor(0.5)}
    found = restored({"quant_method": "fp8"}, one, tmp_path / "a")
    expect(found, [[0.5, -1, 2], [0.25, 224, 0]])
    rows = {"weight": stored, "weight_scale": torch.tensor([[1.0], [2.0]])}
    expect(restored({"quant_method": "fp8"}, rows, tmp_path / "b"), [[1, -2, 4], [1, 896, 0]])
    blocks = {"weight": stored, "weight_scale_inv": torch.tensor([[1.0, 10.0], [2.0, 3.0]])}
    fields = {"quant_method": "fp8", "weight_block_size": [1, 2]}
    expect(restored(fields, blocks, tmp_path / "c"), [[1, -2, 40], [1, 896, 0]])


def test_compressed_tensors_by_hand(tmp_path: Path) -> None:
    # 8 bits: 128 is 0. Two columns of the second int32 are padding.
    parts = {
        "weight_packed": torch.tensor([[0x7F7E8180, 0x00000082]], dtype=torch.int64).to(
            torch.int32
        ),
        "weight_scale": torch.tensor([[0.5]]),
        "weight_shape": torch.tensor([1, 5]),
    }
    fields = compressed("pack-quantized", num_bits=8, type="int", strategy="channel")
    folder = tmp_path / "a"
    with pytest.raises(AssertionError):  # shapes alone do not show the padding
        restored(fields, parts, folder)
    weights = checkpoint_weights(folder, base=None, legacy_weights=False)
    expect(dict(weights.stream())["m.weight"], [[0, 0.5, -1, -0.5, 1]])


@pytest.mark.parametrize("method", [name for name in METHODS if name.startswith("ct-")])
def test_compressed_tensors_are_what_its_own_package_makes_of_them(
    method: str, plain: Path, tmp_path: Path
) -> None:
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    packed, _ = quantised_checkpoint(plain, tmp_path, method)
    fields = METHODS[method][0]
    scheme = QuantizationScheme(**fields["config_groups"]["group_0"])
    compressor = BaseCompressor.get_value_from_registry(fields["format"])
    stored = load_file(packed / "model.safetensors")
    own = dict(checkpoint_weights(packed, base=None, legacy_weights=False).stream())
    module = "model.layers.0.mlp.down_proj."
    parts = {n.removeprefix(module): t for n, t in stored.items() if n.startswith(module)}
    theirs = compressor.decompress(parts, scheme)["weight"].float()
    # Their product is rounded to the dtype of the scales, which is float16 where packed.
    torch.testing.assert_close(own[f"{module}weight"], theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # transformers'
def test_float8_in_blocks_is_what_transformers_makes_of_it(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    fields = METHODS["fp8-blocks"][0] | {"weight_block_size": [32, 32]}
    monkeypatch.setitem(METHODS, "fp8-32", (fields, lambda weight: fp8(weight, block=32)))
    packed, _ = quantised_checkpoint(plain, tmp_path, "fp8-32")
    model = AutoModelForCausalLM.from_pretrained(
        packed,
        dtype=torch.float32,
        quantization_config=FineGrainedFP8Config(dequantize=True, weight_block_size=(32, 32)),
    )
    theirs = model.state_dict()
    own = dict(checkpoint_weights(packed, base=None, legacy_weights=False).stream())
    assert own.keys() == theirs.keys()
    for name, tensor in own.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-6, atol=1e-8)


def packed_by_vllm(bits: int) -> dict[str, np.ndarray]:
    """A matrix (in, out), and its integers as vLLM's own tools pack them for GPTQ and AWQ."""
    from vllm.model_executor.layers.quantization.utils import quant_utils
    from vllm.scalar_type import scalar_types

    torch.manual_seed(0)
    weight = torch.randn(64, 32)
    kind = {4: scalar_types.uint4b8, 8: scalar_types.uint8b128}[bits]
    of_gptq, gptq, scales, _ = quant_utils.quantize_weights(weight, kind, 32)
    made = {
        "gptq": of_gptq,
        "gptq_qweight": quant_utils.gptq_pack(gptq, bits, 64, 32),
        "gptq_scales": scales,
    }
    of_awq, awq, scales, zeros = quant_utils.quantize_weights(
        weight, scalar_types.uint4, 32, zero_points=True
    )
    made |= {
        "awq": of_awq,
        "awq_qweight": quant_utils.awq_pack(awq, 4, 64, 32),
        "awq_scales": scales,
        "awq_qzeros": quant_utils.awq_pack(zeros, 4, 2, 32),
    }
    return {name: tensor.numpy() for name, tensor in made.items()}


@pytest.mark.vllm
@pytest.mark.parametrize("bits", [4, 8])
def test_what_vllm_packs_is_unpacked_to_its_numbers(
    bits: int, tmp_path: Path, preloaded: Preloaded
) -> None:
    require_vllm()
    made = preloaded.run("vllm", tmp_path, f"{__name__}:packed_by_vllm", bits)
    tensors = {name: torch.from_numpy(array) for name, array in made.items()}
    zero = {4: 0x77777777, 8: 0x7F7F7F7F}[bits]  # the symmetric zero, less one
    parts = {
        "qweight": tensors["gptq_qweight"],
        "scales": tensors["gptq_scales"],
        "qzeros": torch.full((2, bits), zero, dtype=torch.int32),
    }
    found = restored(
        {"quant_method": "gptq", "bits": bits, "group_size": 32}, parts, tmp_path / "a"
    )
    torch.testing.assert_close(found.T, tensors["gptq"], rtol=1e-6, atol=1e-7)
    parts = {end: tensors[f"awq_{end}"] for end in ("qweight", "scales", "qzeros")}
    found = restored({"quant_method": "awq", "bits": 4, "group_size": 32}, parts, tmp_path / "b")
    torch.testing.assert_close(found.T, tensors["awq"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_streams_the_numbers_that_it_stands_for(
    method: str, plain: Path, tmp_path: Path
) -> None:
    packed, whole = quantised_checkpoint(plain, tmp_path, method)
    expected = load_file(whole / "model.safetensors")
    weights = checkpoint_weights(packed, base=None, legacy_weights=False)
    tensors = dict(weights.stream())
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=1e-8)
    named = weights.describe()["quantization"]
    assert isinstance(named, dict)
    assert (named["method"], named["tensors"]) == (METHODS[method][0]["quant_method"], 14)
    some = ["model.norm.weight", "model.layers.0.mlp.up_proj.weight"]
    assert [name for name, _ in weights.stream(only=some)] == some


@pytest.mark.parametrize(
    ("engine_name", "methods"),
    [
        ("transformers", [*METHODS]),
        pytest.param("vllm", ["awq", "gptq", "ct-packed", "fp8"], marks=pytest.mark.vllm),
    ],
)
def test_engines_run_quantised_checkpoints_as_the_numbers_that_they_stand_for(
    engine_name: EngineName,
    methods: list[str],
    plain: Path,
    tmp_path: Path,
    preloaded: Preloaded,
) -> None:
    pairs = [quantised_checkpoint(plain, tmp_path, method) for method in methods]
    folders = [packed for packed, _ in pairs]
    expected = reference([*(whole for _, whole in pairs), plain], queries())
    assert np.abs(expected[0] - expected[-1]).max() > 0.01, "rounding must be seen"
    settings = EngineSettings(engine_name, max_length=64)
    if engine_name == "vllm":
        require_vllm()
        module = "tests.support.engine_driver:engine"
        found = preloaded.run("vllm", tmp_path, module, settings, [*folders, plain], queries())
    else:
        found = engine(settings, [*folders, plain], queries())
    for rows, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(rows, wanted, rtol=0, atol=TOLERANCE)


def test_an_adapter_may_be_of_a_quantised_base(plain: Path, tmp_path: Path) -> None:
    packed, whole = quantised_checkpoint(plain, tmp_path, "awq")
    modules = {"model.layers.0.self_attn.q_proj": (128, 64)}
    adapter = random_adapter(tmp_path / "a", packed, modules, seed=1)
    of_packed, of_whole = (
        checkpoint_weights(adapter, base=base, legacy_weights=False) for base in (packed, whole)
    )
    expected = dict(of_whole.stream())
    for name, tensor in of_packed.stream():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=1e-7)
    assert of_packed.describe().keys() == {"quantization", "adapter"}
    settings = EngineSettings("transformers", base=packed, max_length=64)
    one, two = engine(settings, [adapter, packed], queries())
    (alone,) = reference([whole], queries())
    np.testing.assert_allclose(two, alone, rtol=0, atol=TOLERANCE)
    assert np.abs(one - two).max() > 0.1


PACKED = METHODS["ct-packed"][0]


def changed(**fields: Any) -> dict[str, Any]:
    return PACKED | fields


def groups(**fields: Any) -> dict[str, Any]:
    weights = PACKED["config_groups"]["group_0"]["weights"] | fields
    return changed(config_groups={"group_0": {"weights": weights}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes', which is not supported"),
        ("mxfp4", "'mxfp4', which is not supported"),
        ({"quant_method": "gptq", "bits": 3}, "and bits '3' is not supported"),
        ({"quant_method": "gptq"}, "and bits 'None' is not supported"),
        ({"quant_method": "gptq", "bits": 4}, "group_size 'None' is no number of columns"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"x": 1}}, "with dynamic, which is not"),
        (
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
            "checkpoint_format 'marlin' is not supported",
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemv"},
            "version 'gemv' is not supported",
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": False},
            "zero_point 'False' is not",
        ),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt 'e5m2' is not supported"),
        ({"quant_method": "fp8", "weight_block_size": [0, 1]}, "is no pair"),
        (changed(format="nvfp4-pack-quantized"), "format 'nvfp4-pack-quantized' is not supported"),
        (changed(sparsity_config={"format": "sparse-24"}), "with sparsity_config, which is not"),
        (changed(transform_config={"r": 1}), "with transform_config, which is not supported"),
        (changed(config_groups={}), "in several ways or none"),
        (groups(num_bits=3), "pack-quantized of 3 bits of type 'int' is not supported"),
        (groups(type="float"), "of 4 bits of type 'float' is not supported"),
        (groups(strategy="tensor_group"), "strategy 'tensor_group' is not supported"),
        (groups(strategy="block", block_structure=[2, 2]), r"block_structure '\[2, 2\]' is not"),
    ],
)
def test_what_is_not_supported_is_named_with_what_to_do(
    fields: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": fields}))
    with pytest.raises(WeightsError, match=message) as caught:
        scheme_of(tmp_path)
    assert "; give the model before it was quantised, or save it dequantised" in str(caught.value)


def test_modelopts_own_file_is_seen(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert scheme_of(tmp_path) is None
    (tmp_path / "hf_quant_config.json").write_text("{}")
    with pytest.raises(WeightsError, match="'modelopt', which is not supported"):
        scheme_of(tmp_path)


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("gptq", {"scales": torch.ones(3, 4)}, "do not belong together; fetch"),
        ("gptq", {"g_idx": torch.full((64,), 9, dtype=torch.int32)}, "do not belong together"),
        ("gptq", {"qzeros": torch.full((2, 16), 15, dtype=torch.int32)}, "a zero is stored as 15"),
        ("gptq", {"qweight": torch.ones(8, 64)}, "torch.float32 and shape"),
        ("awq", {"qzeros": torch.ones(2, 4, dtype=torch.int32)}, "do not belong together"),
        ("fp8", {"weight_scale": torch.ones(3)}, "do not belong together"),
        ("fp8", {"weight": torch.ones(128, 64)}, "do not belong together"),
        ("ct-packed", {"weight_shape": torch.tensor([128, 9])}, r"have weight_shape \[128, 9\]"),
        ("ct-packed", {"weight_shape": torch.tensor([2])}, r"weight_shape \[2\] is no shape"),
        ("awq", {"qweight": torch.ones(2, 2, 2, dtype=torch.int32)}, "is of no matrix"),
        ("gptq", {"qweight": torch.ones(2, dtype=torch.int32)}, "is of no matrix"),
        ("ct-int8", {"weight": torch.ones(128, 64)}, "it is of torch.float32, and not of eight"),
        ("ct-packed-zeros", {"weight_zero_point": None}, "lacks weight_zero_point"),
        ("gptq", {"qzeros": None}, "lacks qzeros"),
        ("fp8", {"weight_scale": None}, "is of torch.float8_e4m3fn and has no scale"),
    ],
)
def test_tensors_that_do_not_belong_together_are_refused(
    method: str,
    change: dict[str, torch.Tensor | None],
    message: str,
    plain: Path,
    tmp_path: Path,
) -> None:
    packed, _ = quantised_checkpoint(plain, tmp_path, method)
    tensors: dict[str, Any] = load_file(packed / "model.safetensors")
    tensors |= {f"model.layers.0.self_attn.q_proj.{end}": part for end, part in change.items()}
    save_file({n: t for n, t in tensors.items() if t is not None}, packed / "model.safetensors")
    with pytest.raises(WeightsError, match=message):
        dict(checkpoint_weights(packed, base=None, legacy_weights=False).stream())


# In a bank


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "p.jsonl"
    line = '{"id": "a", "text": "the nurse said", "options": [" he", " she"], "answer": " he"}'
    path.write_text(line + "\n")
    return str(path)


def test_a_bank_of_a_quantised_model_is_compared_with_that_of_its_base(
    plain: Path, prompts: str, tmp_path: Path, preloaded: Preloaded
) -> None:
    packed, _ = quantised_checkpoint(plain, tmp_path, "awq")
    with preloaded.workers("transformers"):
        for name, folder in (("base", plain), ("awq", packed)):
            summary = extract(
                tmp_path / f"{name}.zarr",
                suite=folder,
                model="tiny",
                prompts=prompts,
                engine="transformers",
                dtype="float32",
            )
            assert len(summary.done) == 1, [f.message for f in summary.failed]
    (deposit,) = Bank.open(tmp_path / "awq.zarr").deposits()
    assert deposit.spec.provenance["quantization"] == {"method": "awq", "bits": 4, "tensors": 14}
    (row,) = compare(tmp_path / "base.zarr", tmp_path / "awq.zarr").result.logits.to_dicts()
    assert not row["same_weights"]
    ids = Bank.open(tmp_path / "base.zarr").query_set(deposit.spec.query_set).queries
    one, other = reference([plain, tmp_path / "awq-numbers"], list(ids))
    assert row["max_logit_difference"] == pytest.approx(np.abs(one - other).max(), abs=1e-3)


def test_what_cannot_be_run_is_refused_while_planning(
    plain: Path, prompts: str, tmp_path: Path
) -> None:
    packed, _ = quantised_checkpoint(plain, tmp_path, "awq")
    set_quantisation(packed, {"quant_method": "bitsandbytes", "load_in_4bit": True})
    for dry_run in (True, False):
        with pytest.raises(LogitbankError, match="quantised with 'bitsandbytes', which is not"):
            extract(tmp_path / "b.zarr", suite=packed, prompts=prompts, dry_run=dry_run)
    assert not (tmp_path / "b.zarr").exists()


def by_vllms_own_kernels(folder: Path, ids: list[int]) -> np.ndarray:
    """Log-probabilities (v,) after these tokens, of vLLM alone in bfloat16."""
    from vllm import LLM, SamplingParams

    import logitbank.engine.backends.vllm.engine  # noqa: F401  (its environment)

    llm: Any = LLM(
        model=str(folder),
        dtype="bfloat16",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        kv_cache_memory_bytes=1 << 28,
        max_logprobs=640,
    )
    params = SamplingParams(max_tokens=1, temperature=0, logprobs=640, detokenize=False)
    output = llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
    row = output[0].outputs[0].logprobs[0]
    return np.array([row[token].logprob for token in range(640)])


@pytest.mark.vllm
@pytest.mark.whole
@pytest.mark.parametrize("method", ["awq", "ct-packed"])
def test_numbers_are_those_that_vllms_own_kernels_multiply(
    method: str, plain: Path, tmp_path: Path, preloaded: Preloaded
) -> None:
    """Its kernels of a CPU compute in bfloat16, so that they agree to its rounding alone."""
    require_vllm()
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("vLLM has kernels of 4-bit weights for processors with AVX-512 alone")
    packed, _ = quantised_checkpoint(plain, tmp_path, method)
    query = queries()[2]
    call = (f"{__name__}:by_vllms_own_kernels", packed, list(query.ids))
    theirs = preloaded.run("vllm", tmp_path, *call)
    own, of_base = (
        torch.tensor(rows[0]).log_softmax(0).numpy()
        for rows in engine(EngineSettings("transformers", max_length=64), [packed, plain], [query])
    )
    assert np.abs(own - theirs).max() < 0.1
    assert np.abs(own - of_base).max() > 0.3, "what quantising changed is more than rounding"
