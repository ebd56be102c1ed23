"""Which engine runs a plan: the one that its settings name, imported when it is asked for."""

import os
from collections.abc import Callable
from pathlib import Path

from logitbank.engine.backends.precision import precision_environment
from logitbank.engine.backends.protocol import Backend, EngineSettings


def open_backend(folder: Path, settings: EngineSettings) -> Backend:
    """Start the engine that the settings name, on the architecture of `folder`.

    Raises
    ------
    WeightsError
        The folder's config claims more than its weights hold; no memory was asked for then.
    SuiteError
        It has a field that may change the model and that nobody reads.
    """
    from logitbank.engine.weights.config import check_sizes
    from logitbank.engine.weights.supported import check_fields

    check_sizes(folder)
    check_fields(folder, trust_remote_code=settings.trust_remote_code)
    engine = import_engine(settings)
    if settings.engine == "vllm":
        from logitbank.engine.backends.vllm.granted import sized

        settings = sized(folder, settings)
    return engine(folder, settings)


def import_engine(settings: EngineSettings) -> Callable[[Path, EngineSettings], Backend]:
    """The class of the engine that the settings name; its packages take seconds to import."""
    os.environ |= precision_environment(settings.compute_dtype)
    if settings.deterministic:  # read when vLLM is imported, and when CUDA is started
        os.environ |= {"VLLM_BATCH_INVARIANT": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    if settings.engine == "vllm":
        from logitbank.engine.backends.vllm.engine import VllmBackend

        if settings.task == "masked":
            from logitbank.engine.backends.vllm.masked import VllmMaskedBackend

            return VllmMaskedBackend
        if settings.many_positions:
            from logitbank.engine.backends.vllm.positions import VllmPositionsBackend

            return VllmPositionsBackend
        return VllmBackend
    from logitbank.engine.backends.hf.backend import TransformersBackend

    return TransformersBackend
