"""Import and start the engine that the settings name."""

import os
from collections.abc import Callable
from pathlib import Path

from logitbank.engine.backends.device import require_usable_gpu
from logitbank.engine.backends.precision import precision_environment
from logitbank.engine.backends.protocol import Backend, EngineSettings, EngineStart, Task
from logitbank.engine.backends.vllm.machine import require_machine


def open_backend(folder: Path, settings: EngineSettings) -> Backend:
    """Start the engine that the settings name, on the architecture of `folder`.

    Raises
    ------
    DeviceError
        This process may use a GPU, and torch or the engine cannot.
    SuiteError
        The config has an unknown field that may change the model.
    """
    from logitbank.engine.weights.supported import check_fields

    require_usable_gpu(os.environ)
    if settings.engine == "vllm":
        require_machine()
    check_fields(folder, trust_remote_code=settings.trust_remote_code)
    return import_engine(settings.start, settings.task)(folder, settings)


def import_engine(
    start: EngineStart, task: Task = "causal"
) -> Callable[[Path, EngineSettings], Backend]:
    """Import the class of an engine, which takes seconds."""
    os.environ |= precision_environment(start.compute_dtype)
    if start.deterministic:  # vLLM reads the first when imported, CUDA the second at its start
        os.environ |= {"VLLM_BATCH_INVARIANT": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    if start.engine == "vllm":
        if task == "masked":
            from logitbank.engine.backends.vllm.masked import VllmMaskedBackend

            return VllmMaskedBackend
        from logitbank.engine.backends.vllm.engine import VllmBackend

        return VllmBackend
    from logitbank.engine.backends.hf.backend import TransformersBackend

    return TransformersBackend
