"""What vLLM is given of a GPU's memory, or of a CPU's for keys and values. Pure arithmetic.

Left to itself it takes 92 % of a GPU, beside which nothing else starts, and most of a CPU's memory.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from logitbank.engine.backends.precision import value_bytes
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.errors import DeviceError

_BATCHES = 4
"""Full batches whose keys and values have room, where there is memory for so many: one is run, and
the others are what sequences to come begin like."""
_BLOCK = 32
"""Tokens of a block of the prefix cache, at most."""
_LEAST_ON_CPU = 512 * 2**20
_BESIDE = 2 * 2**30
"""Of a GPU, for its context, and what libraries take."""
_ON_THEIR_WAY = 4
"""Tensors of the largest size that a swap holds beside the model: one as it was sent and cast, the
layer that vLLM makes of it before it is copied into the model, and an embedding that waits, as it
comes again as the head, or as vLLM has padded its own."""
_LAYERS = 2
"""So many times all experts of a layer: cast, until the last has come, and made anew of them."""
_EXPERTS = re.compile(r".*\.experts(?=\.)")
_ROWS = 6
"""Copies of a batch's logits in four bytes that the engine holds, at most: those of the model, of
its sampler, the counts of tokens that it keeps for each sequence, and of three batches that wait to
be reduced."""
_REDUCED_ROWS = 5
"""Copies that the reduction of one batch takes, on a stream whose memory no other has: 4.75 with
`topk`, 3.25 without, by what PyTorch's allocator gave on a CPU."""
_SEQUENCES = (1024, 512, 256, 128)
_TOKENS = 16
"""Of a sequence that are run, as the others are shared: 44 % of WinoBias's 38 are."""
_TWICE = 2
_CHECKED = 0.9
"""Of what is needed, what vLLM is told to check for: its own context is there by then."""


class ModelSizes(NamedTuple):
    """What of a model decides how much memory it takes."""

    layers: int
    kv_heads: int
    """Heads of keys and of values: fewer than of queries where these are grouped."""
    head_dim: int
    hidden: int
    intermediate: int
    vocab: int
    parameters: int
    swapped: int
    """Elements that a swap holds beside the model, at most."""

    @classmethod
    def of(cls, config: Any, shapes: Mapping[str, tuple[int, ...]]) -> "ModelSizes":
        """By a config of transformers, and the shapes of the tensors in a checkpoint's files."""
        config = config.get_text_config()
        hidden = _number(config, "hidden_size") or 4096
        heads = _number(config, "num_attention_heads") or 32
        elements = {name: math.prod(shape) for name, shape in shapes.items()}
        # Falcon's older models have one, and a number of them that is not looked at.
        newer = getattr(config, "new_decoder_architecture", False)
        one = 1 if getattr(config, "multi_query", False) and not newer else None
        return cls(
            _number(config, "num_hidden_layers") or 32,
            one or _number(config, "num_key_value_heads", "num_kv_heads") or heads,
            _number(config, "head_dim") or hidden // heads,
            hidden,
            _number(config, "intermediate_size", "ffn_dim", "n_inner") or 4 * hidden,
            _number(config, "vocab_size") or 0,
            sum(elements.values()),
            _swapped(elements),
        )


def _swapped(elements: Mapping[str, int]) -> int:
    """Elements of the tensors that a swap holds at the same time.

    >>> _swapped({"embed.weight": 90, "norm.weight": 1})
    360
    >>> _swapped({"embed.weight": 90} | {f"layers.0.experts.{i}.w1": 50 for i in range(8)})
    980
    """
    experts: dict[str, int] = {}
    for name, count in elements.items():
        if match := _EXPERTS.match(name):
            experts[match[0]] = experts.get(match[0], 0) + count
    largest = max(elements.values(), default=0)
    of_experts = _LAYERS * max(experts.values(), default=0) + 2 * largest
    return max(_ON_THEIR_WAY * largest, of_experts if experts else 0)


def _number(config: Any, *names: str) -> int | None:
    """The first that is there; the largest, where a config has one for each layer."""
    for name in names:
        value = getattr(config, name, None)
        values = value if isinstance(value, list | tuple) else [value]
        if numbers := [n for n in values if isinstance(n, int) and n > 0]:
            return max(numbers)
    return None


class Need(NamedTuple):
    """Bytes that an engine takes of a GPU."""

    weights: int
    keys_and_values: int
    rest: int
    """Activations, and logits until they are reduced; or, while nothing is scored, tensors on their
    way into the model."""
    reduction: int
    """What logits are reduced in, beside the engine."""

    @property
    def of_engine(self) -> int:
        """What its tensors take, but for those of the reduction."""
        return self.weights + self.keys_and_values + self.rest

    @property
    def all(self) -> int:
        """What all tensors take, and what is no tensor."""
        return self.of_engine + self.reduction + _BESIDE


def cache_bytes(sizes: ModelSizes, settings: EngineSettings, batches: int = _BATCHES) -> int:
    """Keys and values of so many full batches.

    Examples
    --------
    Llama-3.1-8B has 32 heads of queries and 8 of keys: a quarter of what as many would take.

    >>> settings = EngineSettings("vllm", compute_dtype="bfloat16", max_length=64)
    >>> llama = ModelSizes(32, 8, 128, 4096, 14_336, 128_256, 8_030_261_248, 4 * 525_336_576)
    >>> cache_bytes(llama, settings, 1) == 2 * 32 * 8 * 128 * 2 * (4096 + 64 + 64 * 32)
    True
    """
    token = 2 * sizes.layers * sizes.kv_heads * sizes.head_dim * value_bytes(settings.compute_dtype)
    # The last block of each sequence is not full.
    spare = settings.max_length + settings.max_sequences * (settings.block_size or _BLOCK)
    return batches * token * (settings.max_batch_tokens + spare)


def cpu_arguments(sizes: ModelSizes, settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `vllm.LLM` on a CPU, where weights and activations need no leave."""
    return {"kv_cache_memory_bytes": max(_LEAST_ON_CPU, cache_bytes(sizes, settings))}


def needed(sizes: ModelSizes, settings: EngineSettings, batches: int = _BATCHES) -> Need:
    """What an engine takes of a GPU, with room for keys and values of so many batches.

    Activations are those of `engine.backends.hf.memory`: at their peak eight hidden states and
    three of the inner layer's, of each token of a batch. The head of masked models holds its matrix
    in float32 beside that of the body.
    """
    value = value_bytes(settings.compute_dtype)
    tokens, rows = settings.max_batch_tokens, settings.max_sequences
    if settings.many_positions:  # heads take so many rows at a time
        rows = max(rows, 128)
    activations = tokens * value * (8 * sizes.hidden + 3 * sizes.intermediate)
    cast = settings.task == "masked" and value < 4
    head = 4 * sizes.hidden * sizes.vocab if cast else 0
    scoring = activations + _ROWS * 4 * rows * sizes.vocab
    return Need(
        sizes.parameters * value + head,
        cache_bytes(sizes, settings, batches),
        max(scoring, sizes.swapped * value),
        _REDUCED_ROWS * 4 * rows * sizes.vocab,
    )


def gpu_arguments(
    sizes: ModelSizes,
    settings: EngineSettings,
    *,
    free: int,
    total: int,
    workers: int = 1,
    gpu: str = "0",
) -> tuple[dict[str, Any], Need]:
    """Arguments of `vllm.LLM` on a GPU, and what they will take of it.

    Each of `workers` on one card may have its part of the whole: fewer batches have room then.

    Examples
    --------
    >>> pythia = ModelSizes(12, 12, 64, 768, 3072, 50_304, 162_322_944, 4 * 38_633_472)
    >>> settings = EngineSettings("vllm", max_length=64)
    >>> card = dict(free=79 * 2**30, total=80 * 2**30)
    >>> arguments, need = gpu_arguments(pythia, settings, **card)
    >>> arguments["kv_cache_memory_bytes"] == need.keys_and_values == cache_bytes(pythia, settings)
    True
    >>> f"{need.all / 1e9:.1f} GB of a card of {card['total'] / 1e9:.0f}"
    '5.3 GB of a card of 86'

    Raises
    ------
    DeviceError
        Less is free than a model needs with room for one batch, or less is a worker's part.
    """
    part = total // workers
    for batches in range(_BATCHES, 0, -1):
        need = needed(sizes, settings, batches)
        if need.all <= min(free, part):
            share = _CHECKED * need.all / total
            return {
                "gpu_memory_utilization": share,
                "kv_cache_memory_bytes": need.keys_and_values,
            }, need
    raise DeviceError(_too_little(need.all, free=free, total=total, workers=workers, gpu=gpu))


def larger_batches(
    sizes: ModelSizes, settings: EngineSettings, *, free: int, total: int, workers: int = 1
) -> EngineSettings:
    """Settings with the largest batches that a GPU holds twice, beside the model.

    A card takes about as long for 64 short sequences as for many more, as starting its kernels is
    most of it. More than 1,024 would save nothing. The settings' own where none of these fits.

    Examples
    --------
    >>> pythia = ModelSizes(12, 12, 64, 768, 3072, 50_304, 162_322_944, 4 * 38_633_472)
    >>> for free in (79, 6):
    ...     room = dict(free=free * 2**30, total=80 * 2**30)
    ...     larger = larger_batches(pythia, EngineSettings("vllm", max_length=64), **room)
    ...     larger.max_sequences, larger.max_batch_tokens
    (1024, 16384)
    (256, 4096)
    """
    for sequences in _SEQUENCES:
        larger = replace(
            settings,
            max_sequences=sequences,
            max_batch_tokens=max(settings.max_batch_tokens, _TOKENS * sequences),
        )
        if needed(sizes, larger, _TWICE).all <= min(free, total // workers):
            return larger
    return settings


def _too_little(need: int, *, free: int, total: int, workers: int, gpu: str) -> str:
    has = f"GPU {gpu} has {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
    wants = f"this model needs {need / 1e9:.1f} GB"
    if need > total:
        return (
            f"{has}, and {wants}: use --compute-dtype bfloat16, or a larger GPU; a model runs on"
            " one GPU"
        )
    if need > total // workers:
        fit = total // need
        return f"{has}, and {wants} for each of {workers} workers on it: use --workers {fit} a GPU"
    return (
        f"{has}, and {wants}; something else uses it (nvidia-smi): wait for that, or end it, or use"
        " --compute-dtype bfloat16"
    )
