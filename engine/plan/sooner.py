"""Which engine has less to do where either may be taken: pure arithmetic, before either starts."""

from collections.abc import Sequence
from dataclasses import replace

from logitbank.engine.backends.contexts import beginnings
from logitbank.engine.backends.hf.packs import packs
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.config import ModelConfig
from logitbank.store.format.schema import Query

PACKED = ("gpt2", "gpt_neox", "llama", "mistral", "olmo", "olmo2", "qwen2", "qwen3", "gemma2")
"""Model types of which it is tested that transformers packs their contexts."""
BLOCK = 32
"""Tokens of a block of vLLM's prefix cache on a CPU; it shares whole blocks."""
WORTH = 1.3
"""How many times the positions vLLM has to run before transformers is taken for it: of one position
it takes 0.9 to 1.1 times as long (70M shape, two busy cores), and its start is quicker."""


def sooner_engine(
    settings: EngineSettings, queries: Sequence[Query], config: ModelConfig, *, gpu: bool
) -> tuple[EngineSettings, tuple[str, ...]]:
    """The settings with the engine that has less to run, and a line where that is not theirs.

    Both give logits that agree to rounding. On a GPU, and below float32, where the two have not
    been measured side by side, the settings stay as they are.
    """
    known = config.model_type in PACKED and settings.task == "causal"
    plain = settings.compute_dtype == "float32" and not settings.deterministic
    if gpu or settings.engine != "vllm" or not (known and plain):
        return settings, ()
    positions = packed_positions(queries, most=settings.max_batch_tokens)
    if settings.many_positions:  # each sequence is run once, whole, without vLLM's cache
        tokens = sum(map(len, {query.ids for query in queries}))
    else:
        tokens = cached_tokens(queries, BLOCK)
    if tokens < WORTH * positions:
        return settings, ()
    note = (
        f"transformers is used: of these prompts it runs {positions:,} positions, as it shares "
        f"their beginnings to the token, where vLLM would run {tokens:,}; --engine vllm takes vLLM"
    )
    return replace(settings, engine="transformers"), (note,)


def packed_positions(queries: Sequence[Query], *, most: int) -> int:
    """Positions of all rows of packed contexts.

    Examples
    --------
    >>> packed_positions([Query((5, 6, 7), 2), Query((5, 6, 8), 2), Query((5, 6), 1)], most=4096)
    4
    """
    return sum(len(pack.ids) for pack in packs(queries, most=most))


def cached_tokens(queries: Sequence[Query], block: int) -> int:
    """Tokens that are run where a beginning is shared by whole blocks, none of them its last token.

    Examples
    --------
    >>> cached_tokens([Query((5, 6, 7), 2), Query((5, 6, 8), 2), Query((5, 6), 1)], 2)
    6
    """
    total, seen = 0, set[bytes]()
    for ids in {query.ids: None for query in queries}:
        cached, ends = 0, range(block, len(ids), block)
        for end, beginning in zip(ends, beginnings(ids, ends), strict=True):
            if beginning in seen:
                cached = end
            seen.add(beginning)
        total += len(ids) - cached
    return total
