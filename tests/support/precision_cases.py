"""What vLLM's own CUDA code would choose, asked on a machine without a GPU.

For a process of its own, because importing vLLM changes torch.
"""

import sys
from types import ModuleType

import torch

import logitbank.engine.backends.vllm.engine  # noqa: F401  (sets the environment, then imports vLLM)


def chosen_on_cuda(dtype: str, attention: str) -> tuple[list[str], str | None]:
    """Attention backends that run at compute capability 9.0, first choice first, at the head size
    of Pythia; and how Triton multiplies float32."""
    sys.modules.setdefault("vllm._C_stable_libtorch", ModuleType("vllm._C_stable_libtorch"))
    from triton import knobs
    from vllm.platforms import cuda
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.selector import AttentionSelectorConfig

    selector = AttentionSelectorConfig(
        head_size=64,
        dtype=getattr(torch, dtype),
        kv_cache_dtype="auto",
        block_size=16,
        attn_type=attention,
    )
    capability = DeviceCapability(9, 0)
    running, _ = cuda.CudaPlatformBase.get_valid_backends(capability, selector, num_heads=12)
    return [choice.backend.name for choice in running], knobs.language.fp32_default
