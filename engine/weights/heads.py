"""The output heads of a checkpoint, by the names and shapes of its tensors; reads no tensor."""

import math
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.weights import tensor_shapes, weight_files
from logitbank.errors import HeadError, WeightsError
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES, CheckpointId, Head
from logitbank.wording import KEEP_WITHOUT_STATES

NEXT_SENTENCE = "cls.seq_relationship.weight"
_WITH_NEXT_SENTENCE = ("bert", "ernie", "fnet", "megatron-bert", "mobilebert")
"""Model types that have a class with a next-sentence head."""
_HEAD = ("lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight")
_EMBEDDING = (
    "embed_in.weight",
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
    "embeddings.weight",
)


class HeadSize(NamedTuple):
    """Expected size of a head, for plans that have not read it."""

    width: int
    """Length of the hidden states that it multiplies."""
    bytes: int
    """Size of its matrix in a bank; 0 if the bank already contains it."""


def is_head(name: str) -> bool:
    """Whether a parameter is an output head."""
    return name.endswith(_HEAD)


def is_embedding(name: str) -> bool:
    """Whether a parameter is the token embedding, which may also be a tied output head."""
    return name.endswith(_EMBEDDING)


def head_sizes(folder: Path, config: ModelConfig, *, value_bytes: int = 4) -> dict[Head, HeadSize]:
    """Sizes of the heads of a checkpoint, by its tensors, or by its config if it has no weights.

    A value has as many bytes as the file's have, and no more than `value_bytes`, to which an engine
    rounds it. Empty if the width of states is unknown; a head that `is_divided` has no size.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    with suppress(WeightsError, OSError):
        shapes = tensor_shapes(folder)
        size = sum(f.stat().st_size for f in weight_files(folder))
        each = round(size / max(1, sum(map(math.prod, shapes.values()))))
        value_bytes = min(value_bytes, max(2, each))
    # Positions have embeddings too, which may be wider than those of tokens.
    wide = {n: shape for n, shape in shapes.items() if len(shape) == 2 and shape[0] >= config.vocab}
    named = [
        *(shape for name, shape in wide.items() if is_head(name)),
        *(shape for name, shape in wide.items() if is_embedding(name)),
    ]
    hidden = config.shape[1]
    width = named[0][1] if named else hidden
    sizes: dict[Head, HeadSize] = {}
    if isinstance(width, int):
        tokens = HeadSize(width, config.vocab * width * value_bytes)
        kinds: tuple[Head, ...] = ("next_token", "mask")
        sizes = {kind: tokens for kind in kinds if not is_divided(kind, config)}
    if len(shape := shapes.get(NEXT_SENTENCE, ())) == 2:
        sizes["next_sentence"] = HeadSize(shape[1], math.prod(shape) * value_bytes)
    elif isinstance(hidden, int):
        sizes["next_sentence"] = HeadSize(hidden, NEXT_SENTENCE_CLASSES * hidden * value_bytes)
    return sizes


def is_divided(kind: Head, config: ModelConfig) -> bool:
    """Whether a head is known to be more than one matrix, so that no state gives back its logits.

    Most others are only found with the model in memory.
    """
    return config.model_type == "mobilebert" and kind == "mask"


def divided_head(checkpoint: CheckpointId, kind: Head, config: ModelConfig) -> HeadError:
    """The error for a head whose logits cannot be computed from states and one matrix."""
    model = ", ".join(config.architectures) or "this model"
    return HeadError(
        f"{checkpoint}: the {kind} logits of {model} are not those of one matrix, a bias, a"
        " scale and a soft cap on its last state, so --keep hidden cannot give them back; use"
        f" --keep {KEEP_WITHOUT_STATES}"
    )


def has_head_bias(folder: Path) -> bool:
    """Whether the weights contain a bias of a causal model's head; no configs name it."""
    with suppress(WeightsError, OSError):
        names = tensor_shapes(folder)
        return any(
            name.endswith(".bias") and is_head(f"{name.removesuffix('bias')}weight")
            for name in names
        )
    return False


def has_next_sentence_head(folder: Path, config: ModelConfig) -> bool:
    """Whether the weights contain one; configs do not list it, and most models have none."""
    if config.model_type not in _WITH_NEXT_SENTENCE:
        return False
    return NEXT_SENTENCE in tensor_shapes(folder)
