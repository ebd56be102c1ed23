"""vLLM takes memory for a few batches, not most of a device. No GPU is used."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from logitbank.engine.backends.choose import larger_batches
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm.memory import cache_bytes, memory_arguments
from logitbank.errors import DeviceError
from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded, require_vllm

SETTINGS = EngineSettings("vllm", max_length=64)
CARD = 80 * 10**9


def model_config(layers: int, kv_heads: int, head_size: int) -> Any:
    """vLLM's `ModelConfig`, as far as it is read."""
    return SimpleNamespace(
        get_total_num_hidden_layers=lambda: layers,
        get_total_num_kv_heads=lambda: kv_heads,
        get_head_size=lambda: head_size,
    )


LLAMA_8B = model_config(32, 8, 128)
# 4,096 tokens, the last blocks of 64 sequences with 32 tokens each, and one sequence of 64.
BATCH = 4096 + 64 * 32 + 64


def test_there_is_room_for_four_batches_of_grouped_heads_and_no_more(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    expected = 4 * BATCH * 2 * 32 * 8 * 128 * 4
    assert cache_bytes(SETTINGS, LLAMA_8B) == expected
    assert cache_bytes(replace(SETTINGS, compute_dtype="bfloat16"), LLAMA_8B) == expected // 2
    assert memory_arguments(folder, SETTINGS, LLAMA_8B) == {"kv_cache_memory_bytes": expected}
    small = memory_arguments(folder, SETTINGS, model_config(1, 1, 64))
    assert small == {"kv_cache_memory_bytes": 512 * 2**20}


def test_weights_that_do_not_fit_are_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    weights = 4 * sum(len(part) for part in _parameters(folder))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (weights, CARD))
    arguments = memory_arguments(folder, SETTINGS, LLAMA_8B)
    assert arguments["gpu_memory_utilization"] == weights / CARD / 2
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (weights - 1, CARD))
    with pytest.raises(DeviceError, match=r"The GPU has 0\.0 of 80\.0 GB free, and the weights"):
        memory_arguments(folder, SETTINGS, LLAMA_8B)


def _parameters(folder: Path) -> list[torch.Tensor]:
    from safetensors.torch import load_file

    return [tensor.flatten() for tensor in load_file(folder / "model.safetensors").values()]


def test_batches_are_larger_on_a_gpu_unless_their_size_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert larger_batches(SETTINGS) == SETTINGS, "there is no GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    larger = larger_batches(SETTINGS)
    assert (larger.max_batch_tokens, larger.max_sequences) == (8192, 256)
    fixed = replace(SETTINGS, larger_on_gpu=False)
    assert larger_batches(fixed) == fixed


@pytest.mark.vllm
@pytest.mark.parametrize(("architecture", "task"), [("gpt_neox", "causal"), ("bert", "masked")])
def test_every_vllm_engine_sets_both_arguments(
    architecture: Any, task: Any, preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture)
    case = "tests.support.memory_cases:asked_of_vllm"
    settings = replace(SETTINGS, task=task)
    asked = preloaded.run("vllm", tmp_path, case, folder, settings, CARD // 2, CARD)
    assert asked == {"gpu_memory_utilization": 0.25, "kv_cache_memory_bytes": 512 * 2**20}
