"""vLLM takes of a GPU what a model needs, so that several engines share it. No GPU is used."""

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import FalconConfig, GPTNeoXConfig, LlamaConfig, Qwen3Config

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm import granted
from logitbank.engine.backends.vllm.granted import granted_memory
from logitbank.engine.backends.vllm.memory import (
    ModelSizes,
    cache_bytes,
    cpu_arguments,
    gpu_arguments,
    needed,
)
from logitbank.engine.plan import parallel
from logitbank.engine.plan.parallel import Share
from logitbank.engine.workers.blocks.reduce_gpu import reduce_rows
from logitbank.errors import DeviceError
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import Keep, KeepLevel
from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded, require_vllm

SETTINGS = EngineSettings("vllm", max_length=64)
LOW = replace(SETTINGS, compute_dtype="bfloat16")
H100 = 85_029_158_912
# Pythia-6.9B, by hand: 1,048,576 bytes of keys and values a token in float32, and 6,208 tokens a
# batch: 4,096, 64 sequences' last blocks of 32, and one longest sequence of 64.
LARGE = ModelSizes(32, 32, 128, 4096, 16_384, 50_432, 6_857_302_016, 4 * 4096 * 50_432)
BATCH = 1_048_576 * 6_208
WEIGHTS = 4 * 6_857_302_016
# Activations 4,096 tokens × 4 bytes × (8 × 4,096 + 3 × 16,384); six copies of 64 logits
SWAPPING = 4 * 4 * 4_096 * 50_432
REDUCTION = 5 * 4 * 64 * 50_432
BESIDE = 2 * 2**30


def test_a_model_s_need_is_what_its_parts_are_by_hand() -> None:
    need = needed(LARGE, SETTINGS)
    assert need == (WEIGHTS, 4 * BATCH, SWAPPING, REDUCTION)
    assert need.of_engine == WEIGHTS + 4 * BATCH + SWAPPING
    assert need.all == need.of_engine + REDUCTION + BESIDE
    half = needed(LARGE, LOW)
    assert (half.weights, half.keys_and_values) == (WEIGHTS // 2, 2 * BATCH)
    assert needed(LARGE, replace(SETTINGS, compute_dtype="tf32")) == need
    tapped = needed(LARGE, replace(SETTINGS, many_positions=True))
    assert tapped.reduction == 2 * need.reduction, "128 rows at a time"


@pytest.mark.filterwarnings("ignore")  # of the profiler
@pytest.mark.parametrize(("keep", "copies"), [("full", 3.25), ("topk", 4.75), ("options", 3.25)])
def test_a_reduction_takes_no_more_than_is_reckoned(keep: KeepLevel, copies: float) -> None:
    """By what PyTorch's allocator gives and takes back meanwhile."""
    rows, vocab = 64, 20_000
    level = Keep(keep, 10) if keep == "topk" else Keep(keep)
    layout = Layout.plan(queries=rows, vocab=vocab, dtype="float32", keep=level)
    logits, tokens = torch.randn(rows, vocab), torch.zeros(rows, 4, dtype=torch.long)
    with torch.profiler.profile(profile_memory=True) as profile:
        reduce_rows(logits, tokens, layout, vocab)
    assert profile.profiler is not None
    events = profile.profiler.kineto_results.events()
    held = [*accumulate(each.nbytes() for each in events if each.name() == "[memory]")]
    assert max(held) / (4 * rows * vocab) == pytest.approx(copies, abs=0.02)
    need = needed(LARGE._replace(vocab=vocab), replace(SETTINGS, max_sequences=rows))
    assert max(held) < need.reduction


def test_one_worker_has_four_batches_and_two_share_a_card_with_one_each() -> None:
    alone, need = gpu_arguments(LARGE, SETTINGS, free=H100 - 2**29, total=H100)
    assert alone["kv_cache_memory_bytes"] == 4 * BATCH
    assert alone["gpu_memory_utilization"] * H100 == pytest.approx(0.9 * need.all)
    first, need = gpu_arguments(LARGE, SETTINGS, free=H100 - 2**29, total=H100, workers=2)
    assert first["kv_cache_memory_bytes"] == BATCH
    left = H100 - 2**29 - need.all
    second, _ = gpu_arguments(LARGE, SETTINGS, free=left, total=H100, workers=2)
    assert second == first
    assert second["gpu_memory_utilization"] * H100 < left, "vLLM refuses to start with less free"


def test_a_card_without_room_is_refused_in_a_line_that_says_what_to_do() -> None:
    def refused(**card: Any) -> str:
        with pytest.raises(DeviceError) as raised:
            gpu_arguments(LARGE, SETTINGS, **card)
        return str(raised.value)

    one = "this model needs 39.5 GB"
    used = refused(free=11_200_000_000, total=H100)
    assert f"GPU 0 has 11.2 of 85.0 GB free, and {one}; something else uses it" in used
    shared = refused(free=H100, total=H100, workers=3, gpu="2")
    assert f"{one} for each of 3 workers on it: use --workers 2 a GPU" in shared
    assert refused(free=24_000_000_000, total=25_000_000_000) == (
        f"GPU 0 has 24.0 of 25.0 GB free, and {one}: use --compute-dtype bfloat16, or a"
        " larger GPU; a model runs on one GPU"
    )


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (GPTNeoXConfig(hidden_size=512, num_attention_heads=8), (44, 8, 64, 512)),
        (
            LlamaConfig(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8),
            (32, 8, 128, 4096),
        ),
        (
            Qwen3Config(
                hidden_size=1024,
                num_hidden_layers=28,
                num_attention_heads=16,
                num_key_value_heads=8,
                head_dim=128,
            ),
            (28, 8, 128, 1024),
        ),
        (FalconConfig(hidden_size=4544, num_attention_heads=71), (32, 1, 64, 4544)),
    ],
    ids=["gpt_neox", "grouped", "head_dim", "multi_query"],
)
def test_heads_of_keys_and_values_are_counted_as_a_config_names_them(
    config: Any, sizes: tuple[int, ...]
) -> None:
    found = ModelSizes.of(config, {"a.weight": (3, 4), "a.bias": (5,)})
    assert found[:4] == sizes
    assert found[-2:] == (17, 4 * 12)


def test_a_cpu_has_room_for_four_batches_of_grouped_heads_and_no_more() -> None:
    grouped = ModelSizes(32, 8, 128, 4096, 14_336, 128_256, 8_030_261_248, 4 * 525_336_576)
    batch = 2 * 32 * 8 * 128 * 4 * 6_208
    assert cpu_arguments(grouped, SETTINGS) == {"kv_cache_memory_bytes": 4 * batch}
    assert cache_bytes(grouped._replace(kv_heads=32), SETTINGS, 1) == 4 * batch
    small = grouped._replace(layers=1, hidden=64, kv_heads=1)
    assert cpu_arguments(small, SETTINGS) == {"kv_cache_memory_bytes": 512 * 2**20}


def test_workers_on_one_gpu_are_told_how_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(parallel, "available_cores", lambda: list(range(33)))
    assert [Share(i, 5).environment() for i in range(5)] == [
        {"CUDA_VISIBLE_DEVICES": gpu, "LOGITBANK_GPU_WORKERS": beside, "OMP_NUM_THREADS": "6"}
        for gpu, beside in 2 * [("4", "3"), ("7", "2")] + [("4", "3")]
    ]


class Card:
    """A card's memory, as PyTorch would tell it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.total, self.reserved = 80 * 10**9, 80 * 10**9, 0
        self.beside: list[tuple[torch.device, int]] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (self.free, self.total))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: self.reserved)
        properties = SimpleNamespace(uuid=f"test-{id(self)}")
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
        monkeypatch.setattr(granted.torch, "empty", self.take)
        monkeypatch.setattr(granted, "beside", lambda at: SimpleNamespace(reserve=self.stream(at)))

    def stream(self, device: torch.device) -> Callable[[int], None]:
        def reserve(size: int) -> None:
            self.beside.append((device, size))
            self.free -= size

        return reserve

    def take(self, size: int, **_: object) -> None:
        self.reserved += size
        self.free -= size


def test_engines_start_one_after_the_other_and_leave_what_they_will_need_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, card = make_checkpoint(tmp_path / "step0", seed=1), Card(monkeypatch)
    card.free = card.total - 10**9
    began = threading.Event()
    seen: list[int] = []

    def second() -> None:
        began.set()
        with granted_memory(folder, SETTINGS):
            seen.append(card.free)

    other = threading.Thread(target=second)
    with granted_memory(folder, SETTINGS) as arguments:
        other.start()
        began.wait()
        other.join(0.3)
        assert seen == [], "the other measures when this one has started"
        card.take(arguments["kv_cache_memory_bytes"])
    other.join()
    parameters = sum(p.numel() for p in _parameters(folder))
    assert card.reserved > arguments["kv_cache_memory_bytes"] + 4 * parameters
    assert [size for _, size in card.beside] == 2 * [5 * 4 * SETTINGS.max_sequences * 640]
    assert {device for device, _ in card.beside} == {torch.device("cuda", 0)}
    assert seen == [card.total - 10**9 - card.reserved - card.beside[0][1]]
    card.free = 10**9
    with pytest.raises(DeviceError, match=r"^GPU 0 has 1\.0 of 80\.0 GB free, and this model"):
        with granted_memory(folder, SETTINGS):
            pytest.fail("it must not start")


def _parameters(folder: Path) -> list[torch.Tensor]:
    from safetensors.torch import load_file

    return [*load_file(folder / "model.safetensors").values()]


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("architecture", "task", "many"),
    [("gpt_neox", "causal", False), ("llama_tied", "causal", True), ("bert", "masked", True)],
)
def test_every_vllm_engine_asks_for_both(
    architecture: Any, task: Any, many: bool, preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture)
    settings = replace(SETTINGS, task=task, many_positions=many)
    case = "tests.support.memory_cases:asked_of_vllm"
    asked = preloaded.run("vllm", tmp_path, case, folder, settings, H100, H100)
    assert asked.keys() == {"gpu_memory_utilization", "kv_cache_memory_bytes"}
    assert 0 < asked["gpu_memory_utilization"] < 0.1, "of tiny models"
