"""Variables of a process that runs vLLM."""

from logitbank.engine.backends.precision import torch_environment
from logitbank.engine.backends.protocol import EngineStart


def environment(start: EngineStart) -> dict[str, str]:
    """Precision of products and, if `deterministic`, kernels that do not depend on the batch."""
    invariant = {"VLLM_BATCH_INVARIANT": "1"} if start.deterministic else {}
    return torch_environment(start) | invariant
