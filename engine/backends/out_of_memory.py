"""Out of memory: recognition, and smaller batches for the next engine."""

from dataclasses import replace

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.errors import LogitbankError

LEAST_TOKENS = 256
"""Tokens of the smallest batch that an engine is restarted with."""
_SIGNS = (
    *("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory"),
    *("alloc_failed", "no available memory", "free memory on device"),
)
"""Parts of messages of CUDA, cuBLAS, PyTorch on a CPU, the system and vLLM's cache."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an engine's error, or one of its causes, is a lack of memory.

    The text of our own errors is not read, as it may name memory as one of several reasons.
    """
    while error is not None:
        text = str(error).lower()
        named = not isinstance(error, LogitbankError) and any(sign in text for sign in _SIGNS)
        if named or isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def smaller(settings: EngineSettings) -> EngineSettings | None:
    """Settings with batches half as large; None if these would be too small to help."""
    if settings.max_batch_tokens <= LEAST_TOKENS:
        return None
    return replace(
        settings,
        max_batch_tokens=max(LEAST_TOKENS, settings.max_batch_tokens // 2),
        max_sequences=max(1, settings.max_sequences // 2),
    )
