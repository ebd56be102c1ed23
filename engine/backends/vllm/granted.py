"""Memory for a vLLM engine that starts: measured, asked for by need, and kept from others.

Imports no vLLM.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

from logitbank.engine.backends.copies import beside
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm.memory import (
    ModelSizes,
    cpu_arguments,
    gpu_arguments,
    larger_batches,
)
from logitbank.engine.plan.parallel import GPU_WORKERS
from logitbank.engine.weights.weights import tensor_shapes
from logitbank.store.files.locks import locked


def sized(folder: Path, settings: EngineSettings) -> EngineSettings:
    """Settings with batches for the GPU at hand; the same on a CPU, or where they are asked for."""
    if not (torch.cuda.is_available() and settings.sizes_from_memory):
        return settings
    free, total = torch.cuda.mem_get_info()
    workers = int(os.environ.get(GPU_WORKERS, "1"))
    sizes = _sizes(folder, settings)
    return larger_batches(sizes, settings, free=free, total=total, workers=workers)


def _sizes(folder: Path, settings: EngineSettings) -> ModelSizes:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)
    return ModelSizes.of(config, tensor_shapes(folder))


@contextmanager
def granted_memory(folder: Path, settings: EngineSettings) -> Iterator[dict[str, Any]]:
    """Arguments of `vllm.LLM` for a model, which is to be started inside.

    Engines start one after the other on a GPU: each measures what those before have left, as vLLM
    takes what it was granted while it starts. What it takes later is taken at the end, too, and
    stays PyTorch's to give: to the engine, and to the stream on which logits are reduced.

    Raises
    ------
    DeviceError
        The GPU has less free than the model needs.
    """
    sizes = _sizes(folder, settings)
    if not torch.cuda.is_available():
        yield cpu_arguments(sizes, settings)
        return
    with _kept_from_others():
        free, total = torch.cuda.mem_get_info()
        arguments, need = gpu_arguments(
            *(sizes, settings),
            free=free,
            total=total,
            workers=int(os.environ.get(GPU_WORKERS, "1")),
            gpu=os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0",
        )
        yield arguments
        if (missing := need.of_engine - torch.cuda.memory_reserved()) > 0:
            torch.empty(missing, dtype=torch.uint8, device="cuda")
        beside(torch.device("cuda", 0)).reserve(need.reduction)


def _kept_from_others() -> AbstractContextManager[object]:
    """A lock of this GPU."""
    uuid = torch.cuda.get_device_properties().uuid
    return locked(Path(tempfile.gettempdir()) / f"logitbank-{os.getuid()}-{uuid}.lock")
