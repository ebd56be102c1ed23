"""Which engine has less to do where either may be taken: pure arithmetic, before either starts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from logitbank.engine.backends.contexts import Branch, beginnings
from logitbank.engine.backends.hf.packs import rows
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.config import ModelConfig

PACKED = ("gpt2", "gpt_neox", "llama", "mistral", "olmo", "olmo2", "qwen2", "qwen3", "gemma2")
"""Model types of which it is tested that transformers packs their contexts."""
BLOCK, BLOCK_ON_A_GPU = 32, 16
"""Tokens of a block of vLLM's prefix cache; it shares whole blocks."""
WORTH = 1.3
"""How many times the positions vLLM has to run before transformers is taken for it: of one position
it takes 0.9 to 1.1 times as long (70M shape, two busy cores), and its start is quicker. On a GPU
this is an estimate: both run the same products there."""


def sooner_engine(
    settings: EngineSettings, leaves: Sequence[Branch], config: ModelConfig, *, gpu: bool
) -> tuple[EngineSettings, tuple[str, ...]]:
    """The settings with the engine that has less to run, and a line where that is not theirs.

    `leaves` are the contexts that have to be run, in order, if the model is a causal one.
    Both give logits that agree to rounding. Below float32, where packing may be refused by what it
    does to a checkpoint's logits, the settings stay as they are.
    """
    known = config.model_type in PACKED and settings.task == "causal"
    plain = settings.compute_dtype == "float32" and not settings.deterministic
    if settings.engine != "vllm" or not (known and plain):
        return settings, ()
    positions = packed_positions(leaves, most=settings.max_batch_tokens)
    tokens = cached_tokens(leaves, BLOCK_ON_A_GPU if gpu else BLOCK)
    if tokens < WORTH * positions:
        return settings, ()
    note = (
        f"transformers is used: of these prompts it runs {positions:,} positions, as it shares "
        f"their beginnings to the token, where vLLM would run {tokens:,}; --engine vllm takes vLLM"
    )
    return replace(settings, engine="transformers"), (note,)


def packed_positions(leaves: Iterable[Branch], *, most: int) -> int:
    """Positions of all rows of packed contexts.

    Examples
    --------
    >>> packed_positions([Branch((5, 6, 7), [2, 0]), Branch((5, 6, 8), [1])], most=4096)
    4
    """
    return sum(
        len(leaf.context) - shared for row in rows(leaves, most=most) for leaf, shared in row
    )


def cached_tokens(leaves: Iterable[Branch], block: int) -> int:
    """Tokens that vLLM runs: all that are not in blocks that a context before has, too.

    A block that has the last token of a context is not taken for it.

    Examples
    --------
    >>> cached_tokens([Branch((5, 6, 7), [2, 0]), Branch((5, 6, 8), [1])], 2)
    4
    """
    total, seen = 0, set[bytes]()
    for ids, _ in leaves:
        cached, ends = 0, range(block, len(ids), block)
        for end, beginning in zip(ends, beginnings(ids, ends), strict=True):
            if beginning in seen:
                cached = end
            seen.add(beginning)
        total += len(ids) - cached
    return total
