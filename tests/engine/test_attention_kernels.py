"""vLLM's attention on a GPU multiplies float32 as float32, and fits. Compiled here; not run."""

from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from logitbank.engine.backends.precision import precision_environment
from tests.support.marks import long, whole
from tests.support.preloaded import Preloaded, require_vllm

CAPABILITIES = (80, 89, 90, 120)
"""A100, L4 and RTX 40, H100, RTX 50."""
CONSUMER_BYTES = 101_376
"""Shared memory of a block at compute capability 8.6, 8.9 and 12.0."""
PYTHIA, PYTHIA_1B, GEMMA = (64, 0), (256, 0), (256, 4096)
"""Head size and window."""
Case = tuple[int, tuple[int, int]]
CARDS: list[Case] = [(capability, PYTHIA) for capability in CAPABILITIES]


# The card chooses the instructions, and the model the shared memory; `make long` has each pair.
@pytest.mark.vllm
@pytest.mark.parametrize(
    "pairs",
    [
        whole([*CARDS, (89, PYTHIA_1B), (89, GEMMA)]),
        long([*product(CAPABILITIES, (PYTHIA, PYTHIA_1B, GEMMA))]),
    ],
    ids=["each", "each pair"],
)
def test_float32_attention_has_no_tensor_core_products_on_any_card(
    pairs: list[Case], preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    compiler = find_spec("triton") and find_spec("triton.backends.nvidia")
    if compiler is None:
        pytest.skip("Triton's compiler for NVIDIA GPUs is not installed")
    compile_ = "tests.support.attention_kernels:compiled"
    cases = [(capability, *model) for capability, model in pairs]
    float32 = precision_environment("float32")["TRITON_F32_DEFAULT"]
    made = preloaded.run("transformers", tmp_path, compile_, cases, float32, tmp_path)
    assert [kernel.products for kernel in made] == [0] * len(cases)
    for (_, model), kernel in zip(pairs, made, strict=True):
        # Planning refuses vLLM for the one that exceeds it.
        assert (kernel.shared > CONSUMER_BYTES) == (model == GEMMA)
    tf32 = precision_environment("tf32")["TRITON_F32_DEFAULT"]
    few = [(capability, *model) for capability, model in CARDS]
    made = preloaded.run("transformers", tmp_path, compile_, few, tf32, tmp_path)
    assert all(kernel.products for kernel in made), "so they are found where there are some"
