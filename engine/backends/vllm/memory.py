"""Memory that a vLLM engine takes on the device of this process."""

from pathlib import Path
from typing import Any

import torch

from logitbank.engine.backends.gpu_memory import cache_bytes, token_bytes, weight_bytes
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.config import Attention

_UNUSED = 0.01
"""vLLM refuses to start if less than this part of a GPU is free, and does not use it otherwise,
because the bytes of its cache are given. Another worker may take memory meanwhile."""


def memory_arguments(
    folder: Path, settings: EngineSettings, model_config: Any
) -> dict[str, int | float]:
    """Arguments of `vllm.LLM`; `model_config` is vLLM's own.

    Raises
    ------
    DeviceError
        The free memory of the GPU is too small.
    """
    attention = Attention(
        model_config.get_total_num_hidden_layers(),
        model_config.get_total_num_kv_heads(),
        model_config.get_head_size(),
    )
    one = token_bytes(settings, attention)
    if not torch.cuda.is_available():
        return {"kv_cache_memory_bytes": cache_bytes(settings, one, on_gpu=False)}
    free, _ = torch.cuda.mem_get_info()
    if settings.gpu_memory is not None:
        free = min(free, settings.gpu_memory)
    weights = weight_bytes(folder, settings.compute_dtype)
    size = cache_bytes(settings, one, on_gpu=True, free=free, weights=weights)
    return {"kv_cache_memory_bytes": size, "gpu_memory_utilization": _UNUSED}
