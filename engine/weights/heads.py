"""Which heads a checkpoint has beside the one that predicts tokens."""

from pathlib import Path

from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.weights import tensor_names

NEXT_SENTENCE = "cls.seq_relationship.weight"
_NEXT_SENTENCE_TYPES = frozenset({"bert", "ernie", "fnet", "megatron-bert", "mobilebert"})
"""Model types for which transformers has a class with both heads."""


def has_next_sentence_head(folder: Path, config: ModelConfig, *, legacy_weights: bool) -> bool:
    """Whether the weights hold one; a config does not say, and most models have none."""
    if config.model_type not in _NEXT_SENTENCE_TYPES:
        return False
    return NEXT_SENTENCE in tensor_names(folder, legacy_weights=legacy_weights)
