"""vLLM takes memory for a few batches, and no more than a GPU has. No GPU is used."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.backends import gpus as cards_module
from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.gpus import Card, free_memory, listed_cards
from logitbank.engine.backends.hf.memory import check_memory
from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.engine.backends.vllm.memory import cache_bytes, token_bytes
from logitbank.engine.backends.vllm.refusals import machine_problem
from logitbank.engine.backends.weight_bytes import WeightBytes, weight_bytes
from logitbank.engine.weights.config import Attention, ModelConfig
from logitbank.errors import DeviceError, UsageError
from tests.support.checkpoints import make_checkpoint
from tests.support.fakes import TEXTS, questions, request_for, write_series
from tests.support.preloaded import Preloaded, require_vllm
from tests.support.resolved import make_plan, run

CPU = EngineSettings("vllm", max_length=64)
GPU = replace(CPU, max_batch_tokens=8192, max_sequences=256)
CARD = 80 * 10**9

PYTHIA = {
    "14m": (6, 128), "31m": (6, 256), "70m": (6, 512), "160m": (12, 768), "410m": (24, 1024),
    "1b": (16, 2048), "1.4b": (24, 2048), "2.8b": (32, 2560), "6.9b": (32, 4096), "12b": (36, 5120),
}  # fmt: skip
"""Layers and width; no heads are grouped, so a token keeps 2 × width values a layer."""
CARDS = (24, 40, 48, 80, 141)
"""GB."""
EXPECTED: dict[ComputeDtype, dict[str, tuple[float, ...]]] = {
    # GB on each of the cards; 0 where the engine is refused.
    "float32": {
        "14m": (0.54,) * 5,
        "31m": (0.54,) * 5,
        "70m": (0.61,) * 5,
        "160m": (1.82,) * 5,
        "410m": (4.86,) * 5,
        "1b": (6.48,) * 5,
        "1.4b": (9.71,) * 5,
        "2.8b": (0, 16.19, 16.19, 16.19, 16.19),
        "6.9b": (0, 0, 0, 25.9, 25.9),
        "12b": (0, 0, 0, 20.54, 36.43),
    },
    "bfloat16": {
        "14m": (0.54,) * 5,
        "31m": (0.54,) * 5,
        "70m": (0.54,) * 5,
        "160m": (0.91,) * 5,
        "410m": (2.43,) * 5,
        "1b": (3.24,) * 5,
        "1.4b": (4.86,) * 5,
        "2.8b": (8.1,) * 5,
        "6.9b": (0, 12.95, 12.95, 12.95, 12.95),
        "12b": (0, 9.27, 16.47, 18.21, 18.21),
    },
}


def pythia(name: str) -> tuple[Attention, WeightBytes]:
    """Sizes by the architecture: 12 × width² and 13 × width values a layer, and two embeddings."""
    layers, width = PYTHIA[name]
    outputs = 50_304 + 128 * ((name == "6.9b") + 3 * (name == "12b"))
    values = layers * (12 * width**2 + 13 * width) + 2 * outputs * width + 2 * width
    return Attention(layers, 8, width // 8), WeightBytes(values, outputs * width)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", PYTHIA)
def test_keys_and_values_of_pythia_fit_beside_its_weights_or_it_is_refused(
    name: str, dtype: ComputeDtype
) -> None:
    attention, values = pythia(name)
    width = 4 if dtype == "float32" else 2
    weights = WeightBytes(*(width * each for each in values))
    settings = replace(GPU, compute_dtype=dtype)
    one = token_bytes(settings, attention)
    assert one == 2 * PYTHIA[name][0] * PYTHIA[name][1] * width
    # 8,192 tokens, the last blocks of 256 sequences with 16 tokens each, and one sequence of 64.
    batch = (8192 + 256 * 16 + 64) * one
    for size, expected in zip(CARDS, EXPECTED[dtype][name], strict=True):
        free = size * 10**9
        if not expected:
            with pytest.raises(DeviceError, match=rf"{size}\.0 GB of free memory .* needs \d+\.\d"):
                cache_bytes(settings, one, on_gpu=True, free=free, weights=weights)
            continue
        size_of_cache = cache_bytes(settings, one, on_gpu=True, free=free, weights=weights)
        assert size_of_cache / 1e9 == pytest.approx(expected, abs=0.006)
        assert batch <= size_of_cache <= max(2 * batch, 512 * 2**20)
        assert size_of_cache + weights.total + 2 * weights.largest + 2e9 <= 0.9 * free


def test_a_card_has_room_for_two_batches_of_grouped_heads_and_no_more(tmp_path: Path) -> None:
    llama_8b = Attention(32, 8, 128)
    one = token_bytes(CPU, llama_8b)
    assert one == 2 * 32 * 8 * 128 * 4
    assert token_bytes(replace(CPU, task="masked"), llama_8b) == 0
    # On a CPU 4,096 tokens and the last blocks of 64 sequences with 32 tokens each.
    assert cache_bytes(CPU, one, on_gpu=False) == 2 * (4096 + 64 * 32 + 64) * one
    assert cache_bytes(CPU, 4, on_gpu=False) == 512 * 2**20
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    assert weight_bytes(folder, "float32") == (4 * PARAMETERS, 4 * 640 * 64)
    assert weight_bytes(folder, "bfloat16") == (2 * PARAMETERS, 2 * 640 * 64)


PARAMETERS = 2 * 640 * 64 + 2 * 64 + 2 * (12 * 64**2 + 13 * 64) - 2 * (4 * 64**2 + 2 * 64)
"""Of the tiny GPT-NeoX: its layers are half as wide as usual between."""


def test_config_fields_give_the_sizes_of_attention(tmp_path: Path) -> None:
    config = ModelConfig.read(make_checkpoint(tmp_path / "neox", seed=1))
    assert config.attention == Attention(2, 2, 32)
    config = ModelConfig.read(make_checkpoint(tmp_path / "m", seed=1, architecture="mistral"))
    assert config.attention == Attention(2, 2, 32, has_window=True)
    (series := write_series(tmp_path / "unknown", "step0"))
    assert ModelConfig.read(series / "step0").attention is None


def planned(tmp_path: Path, cards: tuple[Card, ...], **changes: Any) -> EngineSettings:
    """Settings of the plan of a checkpoint with tiny weights and the attention of Pythia-6.9B."""
    sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    sizes |= changes.pop("config", {})
    folder = write_series(tmp_path / "tiny", "step0", **sizes) / "step0"
    engines = changes.pop("engines", 1)
    request = request_for(folder.parent, questions(*TEXTS), **changes)
    return make_plan(request, None, folder, gpu=True, cards=cards, engines=engines).settings


H100 = Card((9, 0), CARD)


def test_an_engine_without_room_for_a_batch_is_refused_while_planning(tmp_path: Path) -> None:
    require_vllm()
    assert planned(tmp_path, (H100,), engine="vllm").gpu_memory == CARD
    assert planned(tmp_path, (H100,), engine="vllm", engines=2).gpu_memory == CARD // 2
    small = (Card((8, 0), 16 * 10**9),)
    with pytest.raises(DeviceError, match=r"The GPU has 16\.0 GB .* vLLM needs 16\.\d GB.*batch"):
        planned(tmp_path, small, engine="vllm")
    with pytest.raises(DeviceError, match=r"The GPU has 13\.3 GB"):
        planned(tmp_path, (Card((8, 0), 40 * 10**9),), engine="vllm", engines=3)
    assert planned(tmp_path, small, engine="vllm", batch_tokens=1024).gpu_memory == 16 * 10**9
    assert planned(tmp_path, small, engine="transformers").gpu_memory == 16 * 10**9
    assert planned(tmp_path, (Card((8, 0), None),), engine="vllm").gpu_memory is None
    assert planned(tmp_path, (), engine="vllm").gpu_memory is None


def test_weights_that_do_not_fit_are_refused_for_transformers_too(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    config = ModelConfig.read(folder)
    cards = (Card((8, 0), 4 * PARAMETERS), Card((8, 0), 5))
    whole, half = (
        EngineSettings("transformers", gpu_memory=free_memory(cards, engines)) for engines in (1, 2)
    )
    assert whole.gpu_memory == 4 * PARAMETERS
    check_memory(whole, folder, config)
    with pytest.raises(DeviceError, match="free memory for each engine, and the weights take"):
        check_memory(half, folder, config)


def test_a_run_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_vllm()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(cards_module, "run_nvidia_smi", lambda *_: "8.0, 8000\n")
    sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    series = write_series(tmp_path / "tiny", "step0", **sizes)
    request = request_for(series, questions(*TEXTS), engine="vllm")
    for dry_run in (False, True):
        with pytest.raises(DeviceError, match=r"The GPU has 8\.4 GB of free memory"):
            run(tmp_path / "b.zarr", request, dry_run=dry_run)
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize(
    ("devices", "cards"),
    [
        ({}, ()),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        (
            {"CUDA_VISIBLE_DEVICES": "1"},
            (Card((9, 0), 81_000 * 2**20), Card((12, 0), 32_000 * 2**20)),
        ),
        ({"CUDA_VISIBLE_DEVICES": "MIG-5a"}, (Card((9, 0), None), Card((12, 0), None))),
    ],
)
def test_cards_are_read_from_nvidia_smi(
    devices: Mapping[str, str], cards: tuple[Card, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = "9.0, 81000\n12.0, 32000\n[N/A], [N/A]\n"
    monkeypatch.setattr(cards_module, "run_nvidia_smi", lambda *_: listed)
    monkeypatch.setattr("logitbank.engine.backends.gpus.nvidia_smi", lambda *_: "")
    assert listed_cards(devices) == cards


GEMMA = {"head_dim": 256, "sliding_window": 4096}


@pytest.mark.parametrize(
    ("capability", "dtype", "config", "reason"),
    [
        ((9, 0), "float32", GEMMA, ""),
        ((8, 0), "float32", GEMMA, ""),
        ((8, 9), "float32", GEMMA, "116,992 bytes of shared memory"),
        ((12, 0), "tf32", GEMMA, "compute capability 12.0 has 101,376"),
        ((8, 6), "bfloat16", GEMMA, ""),
        ((8, 6), "float32", {"head_dim": 256}, ""),
        ((8, 6), "float32", {"head_dim": 128, "sliding_window": 4096}, ""),
        ((7, 5), "float32", {}, "vLLM needs compute capability 8.0, and a GPU here has 7.5"),
    ],
)
def test_what_vllm_does_not_run_on_a_card_runs_on_transformers(
    capability: tuple[int, int],
    dtype: ComputeDtype,
    config: dict[str, int],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_vllm()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    changes: dict[str, Any] = {"config": config, "compute_dtype": dtype}
    card = Card(capability, None)
    folder = write_series(tmp_path / "tiny", "step0", **_sizes(config)) / "step0"
    request = request_for(folder.parent, questions(*TEXTS), engine="auto", compute_dtype=dtype)
    prepared = make_plan(request, None, folder, gpu=True, cards=(card,))
    notes = " ".join(prepared.notes)
    assert (prepared.settings.engine == "transformers") == bool(reason), notes
    assert reason in notes
    if reason:
        with pytest.raises(UsageError, match="Use --engine transformers"):
            planned(tmp_path / "named", (card,), engine="vllm", **changes)


def _sizes(config: Mapping[str, int]) -> dict[str, int]:
    return {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, **config}


def test_parts_of_a_divided_gpu_run_on_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_vllm()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-8f6a")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(UsageError, match=r"parts of a divided GPU \(MIG\)\. Use --engine trans"):
        planned(tmp_path, (H100,), engine="vllm")
    # The head of a Ray cluster runs no engine; a worker checks its own machine.
    assert planned(tmp_path / "ray", (), engine="vllm", ray="auto").engine == "vllm"
    with pytest.raises(DeviceError, match=r"parts of a divided GPU \(MIG\)\. Use --engine trans"):
        open_backend(tmp_path, EngineSettings("vllm"))


@pytest.mark.parametrize(
    ("variables", "include", "problem"),
    [
        ({"CC": "no-such-compiler"}, True, "CC=no-such-compiler, which is no program here"),
        ({"PATH": ""}, True, "needs a C compiler: gcc or clang"),
        ({"CC": sys.executable}, False, r"needs .*Python\.h \(install python3-dev\)"),
        ({"CC": sys.executable}, True, ""),
        ({"CUDA_VISIBLE_DEVICES": ""}, False, ""),
    ],
)
def test_vllm_needs_a_compiler_and_headers_on_a_gpu(
    variables: dict[str, str],
    include: bool,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_vllm()
    if include:
        (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    for name, value in ({"CUDA_VISIBLE_DEVICES": "0"} | variables).items():
        monkeypatch.setenv(name, value)
    assert re.search(problem, machine_problem())
    assert bool(machine_problem()) == bool(problem)
    folder = write_series(tmp_path / "tiny", "step0") / "step0"
    request = request_for(folder.parent, questions(*TEXTS), engine="auto")
    settings = make_plan(request, None, folder).settings
    assert settings.engine == ("transformers" if problem else "vllm"), "auto takes what works"


@pytest.mark.vllm
@pytest.mark.parametrize(("architecture", "task"), [("gpt_neox", "causal"), ("bert", "masked")])
def test_every_vllm_engine_sets_both_arguments(
    architecture: Any, task: Any, preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture)
    case = "tests.support.memory_cases:asked_of_vllm"
    settings = replace(GPU, task=task)
    asked = preloaded.run("vllm", tmp_path, case, folder, settings, CARD // 2, CARD)
    # Another worker that takes memory before vLLM looks does not end it.
    assert asked == {"gpu_memory_utilization": 0.01, "kv_cache_memory_bytes": 512 * 2**20}
    short = replace(settings, gpu_memory=2 * 10**9)
    with pytest.raises(Exception, match=r"The GPU has 2\.0 GB of free memory"):
        preloaded.run("vllm", tmp_path, case, folder, short, CARD // 2, CARD)
