"""What vLLM's own CUDA code would choose, asked on a machine without a GPU; and how heads multiply.

For a process of its own, because importing vLLM changes torch.
"""

import sys
from types import ModuleType

import torch

from logitbank.engine.backends.choose import import_engine
from logitbank.engine.backends.protocol import ComputeDtype, EngineStart
from logitbank.engine.backends.torch_precision import float32_products, multiply_as
from logitbank.engine.backends.vllm.head_inputs import heads_in_float32


def chosen_on_cuda(compute_dtype: ComputeDtype, attention: str) -> tuple[list[str], str, str]:
    """Attention backends that run at compute capability 9.0, first choice first, at the head size
    of Pythia; how Triton multiplies float32, and what vLLM's workers ask of torch."""
    import_engine(EngineStart("vllm", compute_dtype))
    sys.modules.setdefault("vllm._C_stable_libtorch", ModuleType("vllm._C_stable_libtorch"))
    from triton import knobs
    from vllm import envs
    from vllm.platforms import cuda
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.selector import AttentionSelectorConfig

    selector = AttentionSelectorConfig(
        head_size=64,
        dtype=torch.float32,
        kv_cache_dtype="auto",
        block_size=16,
        attn_type=attention,
    )
    capability = DeviceCapability(9, 0)
    running, _ = cuda.CudaPlatformBase.get_valid_backends(capability, selector, num_heads=12)
    chosen = [choice.backend.name for choice in running]
    return chosen, knobs.language.fp32_default, envs.VLLM_FLOAT32_MATMUL_PRECISION


def products_of_body_and_head() -> list[str]:
    """How products are made before, in and after a model's output head where a body has TF32."""
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    class Head(LogitsProcessor):  # type: ignore[misc]
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)  # vLLM's own wants a whole engine's config

        def forward(self) -> str:
            return float32_products()

    model = torch.nn.ModuleList([head := Head()])
    multiply_as("tf32")
    heads_in_float32(model)
    return [float32_products(), head(), float32_products()]
