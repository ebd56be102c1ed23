"""What the vLLM engines ask of a simulated GPU. For a process of its own."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from logitbank.engine.backends.choose import import_engine
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm import engine


class _AskedError(Exception):
    pass


def asked_of_vllm(folder: Path, settings: EngineSettings, free: int, total: int) -> dict[str, Any]:
    """The arguments of `vllm.LLM` that are about memory."""
    recorded: dict[str, Any] = {}

    def llm(**arguments: Any) -> None:
        recorded.update(arguments)
        raise _AskedError

    backend = import_engine(settings.start, settings.task)
    engine.LLM = llm
    torch.cuda.is_available = lambda: True
    torch.cuda.mem_get_info = lambda *_: (free, total)
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    with contextlib.suppress(_AskedError):
        backend(folder, settings)
    return {name: value for name, value in recorded.items() if "memory" in name}
