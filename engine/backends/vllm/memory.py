"""Memory of a vLLM engine: keys and values of a few batches, not most of the device.

By default vLLM takes 92 % of a GPU or most of a CPU's memory, so that no second engine starts.
"""

import math
from pathlib import Path
from typing import Any

import torch

from logitbank.engine.backends.precision import value_bytes
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.weights import tensor_shapes
from logitbank.errors import DeviceError

_BATCHES = 4
"""Full batches whose keys and values fit into the prefix cache."""
_BLOCK = 32
"""Largest block of the prefix cache, in tokens. The last block of a sequence is not full."""
_LEAST = 512 * 2**20


def memory_arguments(
    folder: Path, settings: EngineSettings, model_config: Any
) -> dict[str, int | float]:
    """Arguments of `vllm.LLM`; `model_config` is vLLM's own.

    Raises
    ------
    DeviceError
        The free memory of the GPU is smaller than the weights.
    """
    arguments: dict[str, int | float] = {
        "kv_cache_memory_bytes": max(_LEAST, cache_bytes(settings, model_config))
    }
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        elements = sum(math.prod(shape) for shape in tensor_shapes(folder).values())
        if (weights := elements * value_bytes(settings.compute_dtype)) > free:
            raise DeviceError(
                f"The GPU has {free / 1e9:.1f} of {total / 1e9:.1f} GB free, and the weights take"
                f" {weights / 1e9:.1f} GB: use --compute-dtype bfloat16, fewer --workers, or a"
                " larger GPU"
            )
        # vLLM starts only if this part of the GPU is free, and does not use it otherwise. Another
        # worker may take memory meanwhile.
        arguments["gpu_memory_utilization"] = free / total / 2
    return arguments


def cache_bytes(settings: EngineSettings, model_config: Any) -> int:
    """Bytes of the keys and values of `_BATCHES` full batches."""
    values: int = model_config.get_total_num_kv_heads() * model_config.get_head_size()
    layers: int = model_config.get_total_num_hidden_layers()
    tokens = settings.max_batch_tokens + settings.max_length + settings.max_sequences * _BLOCK
    return _BATCHES * tokens * 2 * layers * values * value_bytes(settings.compute_dtype)
