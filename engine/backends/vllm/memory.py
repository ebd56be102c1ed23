"""Memory of a vLLM engine: weights, a reserve, and keys and values of a few batches.

By default vLLM takes 92 % of a GPU or most of a CPU's memory, so that no second engine starts.
Nothing is imported that needs a device, so that a plan can be refused.
"""

from collections.abc import Iterable
from pathlib import Path

from logitbank.engine.backends.contexts import LeafContext, prefix_digests
from logitbank.engine.backends.precision import value_bytes
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.weight_bytes import NO_WEIGHTS, WeightBytes, weight_bytes
from logitbank.engine.weights.config import Attention, ModelConfig
from logitbank.errors import DeviceError

BLOCK, BLOCK_ON_A_GPU = 32, 16
"""Tokens in a block of vLLM's prefix cache: the fewest that vLLM allows."""
_BATCHES = 2
"""Full batches whose keys and values fit into the prefix cache. Sequences are sorted, so a prefix
is used again soon or never."""
_LEAST = 512 * 2**20
_USABLE = 0.9
"""Part of the free memory of a GPU that is planned; the rest is lost between tensors."""
_RESERVE = 2 * 10**9
"""Bytes for activations, logits and libraries on a GPU."""
_COPIES = 2
"""Copies of the largest tensor that vLLM makes while it reloads weights."""


def check_memory(settings: EngineSettings, folder: Path, config: ModelConfig) -> None:
    """Refuse a model that does not fit into the memory of the settings.

    Raises
    ------
    DeviceError
        Beside the weights and a reserve, not even one batch fits.
    """
    if settings.gpu_memory is None or (settings.task == "causal" and config.attention is None):
        return
    weights = weight_bytes(folder, settings.compute_dtype)
    one = token_bytes(settings, config.attention)
    cache_bytes(settings, one, on_gpu=True, free=settings.gpu_memory, weights=weights)


def token_bytes(settings: EngineSettings, attention: Attention | None) -> int:
    """Bytes of the keys and values of one token; 0 for masked models, which cache none."""
    if attention is None or settings.task == "masked":
        return 0
    values = attention.layers * attention.key_value_heads * attention.head_size
    return 2 * values * value_bytes(settings.compute_dtype)


def cache_bytes(
    settings: EngineSettings,
    one_token: int,
    *,
    on_gpu: bool,
    free: int | None = None,
    weights: WeightBytes = NO_WEIGHTS,
) -> int:
    """Bytes of keys and values: of `_BATCHES` full batches, or of fewer if less memory is free.

    `one_token` are the bytes of `token_bytes`; `free` is None without a limit.

    Raises
    ------
    DeviceError
        Beside the weights and a reserve, not even one batch fits.
    """
    block = BLOCK_ON_A_GPU if on_gpu else BLOCK
    # The last block of a sequence is not full.
    tokens = settings.max_batch_tokens + settings.max_length + settings.max_sequences * block
    batch = tokens * one_token
    most = max(_LEAST, _BATCHES * batch)
    if free is None:
        return most
    besides = weights.total + _COPIES * weights.largest + _RESERVE
    room = int(_USABLE * free) - besides
    if room < batch:
        needed = (batch + besides) / _USABLE
        raise DeviceError(
            f"The GPU has {free / 1e9:.1f} GB of free memory for each engine, and vLLM needs"
            f" {needed / 1e9:.1f} GB: {weights.total / 1e9:.1f} GB for weights,"
            f" {batch / 1e9:.1f} GB for keys and values of a batch of"
            f" {settings.max_batch_tokens:,} tokens, and"
            f" {(needed - weights.total - batch) / 1e9:.1f} GB to work. Use --engine transformers,"
            " --compute-dtype bfloat16, fewer --workers, or a larger GPU."
        )
    return min(most, room)


def run_tokens(
    leaves: Iterable[LeafContext], config: ModelConfig, max_batch_tokens: int, gpu: bool
) -> int:
    """Number of tokens that vLLM runs for contexts of a causal model, with its prefix cache."""
    return cached_tokens(leaves, BLOCK_ON_A_GPU if gpu else BLOCK)


def cached_tokens(leaves: Iterable[LeafContext], block: int) -> int:
    """Number of tokens that vLLM runs: those outside of blocks that an earlier context has.

    The block with the last token of a context is always run.

    Examples
    --------
    >>> cached_tokens([LeafContext((5, 6, 7), [2, 0]), LeafContext((5, 6, 8), [1])], 2)
    4
    """
    total, seen = 0, set[bytes]()
    for ids, _ in leaves:
        cached, ends = 0, range(block, len(ids), block)
        for end, prefix in zip(ends, prefix_digests(ids, ends), strict=True):
            if prefix in seen:
                cached = end
            seen.add(prefix)
        total += len(ids) - cached
    return total
