"""Sizes of batches that a user asks for."""

from typing import TypedDict

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.errors import UsageError


class AskedBatches(TypedDict, total=False):
    """Fields of `EngineSettings`; none where nothing is asked for."""

    max_batch_tokens: int
    max_sequences: int
    sizes_from_memory: bool


def asked_batches(*, tokens: int | None, sequences: int | None) -> AskedBatches:
    """Settings of batches of so many tokens and sequences; what is asked for is not exceeded.

    Raises
    ------
    UsageError
        A size that no batch has, or more sequences than tokens.

    Examples
    --------
    >>> asked_batches(tokens=None, sequences=8192)
    {'max_batch_tokens': 8192, 'max_sequences': 8192, 'sizes_from_memory': False}
    >>> asked_batches(tokens=None, sequences=None)
    {}
    """
    if tokens is None and sequences is None:
        return {}
    for name, value in (("tokens", tokens), ("sequences", sequences)):
        if value is not None and value < 1:
            raise UsageError(f"batches of {value} {name} are not possible; use 1 or more")
    usual = EngineSettings("vllm")
    if tokens is None:
        tokens = max(usual.max_batch_tokens, sequences or 0)
    if sequences is None:
        sequences = min(usual.max_sequences, tokens)
    if sequences > tokens:
        raise UsageError(
            f"a batch of {tokens:,} tokens has no room for {sequences:,} sequences; use"
            f" --batch-tokens {sequences} or more, or fewer --batch-sequences"
        )
    return {"max_batch_tokens": tokens, "max_sequences": sequences, "sizes_from_memory": False}
