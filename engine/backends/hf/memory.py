"""Memory of an engine: batches that fit it, and what to do where they did not. Pure arithmetic."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from logitbank.engine.backends.protocol import EngineSettings

LEAST_TOKENS = 256
"""Starting the engine again with batches smaller than this would not help."""
_SIGNS = (
    *("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory"),
    *("alloc_failed", "no available memory"),
)
"""What errors for lack of memory say: CUDA, cuBLAS, PyTorch on a CPU, the system, vLLM's cache."""


class BatchSize(NamedTuple):
    """What one batch may have at most."""

    tokens: int
    sequences: int


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an engine's error, or what it came of, is a lack of memory."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, MemoryError) or any(sign in text for sign in _SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False


def smaller(settings: EngineSettings) -> EngineSettings | None:
    """Settings with batches half as large; None where that would not help."""
    if settings.max_batch_tokens <= LEAST_TOKENS:
        return None
    return replace(
        settings,
        max_batch_tokens=max(LEAST_TOKENS, settings.max_batch_tokens // 2),
        max_sequences=max(1, settings.max_sequences // 2),
        sizes_from_memory=False,
    )


def sizes_of(config: Any, *, outputs: int, length: int) -> dict[str, int]:
    """What `fitting_batch` needs of a model's config, with its outputs and the longest sequence."""
    hidden = int(getattr(config, "hidden_size", 4096))
    return {
        "hidden": hidden,
        "intermediate": int(getattr(config, "intermediate_size", None) or 4 * hidden),
        "heads": int(getattr(config, "num_attention_heads", 32)),
        "vocab": outputs,
        "length": length,
    }


def fitting_batch(
    free_bytes: int, sizes: Mapping[str, int], *, value_bytes: int, many_positions: bool
) -> BatchSize:
    """A batch that half of the free memory holds, by what a transformer keeps at its peak.

    `sizes` has `hidden`, `intermediate`, `heads`, `vocab` and `length`, the longest sequence. A
    token takes eight hidden states, three of the inner layer's, and two rows of attention scores
    where the model makes them; a scored row takes six of float32 logits (softmax, rounding,
    comparisons).

    Examples
    --------
    >>> pythia = dict(hidden=768, intermediate=3072, heads=12, vocab=50_304, length=64)
    >>> fitting_batch(70 * 2**30, pythia, value_bytes=4, many_positions=False)
    BatchSize(tokens=65536, sequences=1024)
    >>> fitting_batch(2**28, pythia, value_bytes=4, many_positions=False)
    BatchSize(tokens=1024, sequences=55)
    """
    state = 8 * sizes["hidden"] + 3 * sizes["intermediate"] + 2 * sizes["heads"] * sizes["length"]
    token, row = value_bytes * state, 6 * 4 * sizes["vocab"]
    if many_positions:
        token += row
    tokens = free_bytes // 2 // token
    return BatchSize(
        max(512, min(2**16, 2 ** max(0, tokens.bit_length() - 1))),
        max(1, min(1024, free_bytes // 4 // row)),
    )
