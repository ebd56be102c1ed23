"""The masked models that vLLM runs, and the tensors of a checkpoint that their scores depend on.

Published checkpoints also contain unused heads, parameters under two names, and older names.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

    from logitbank.engine.weights.proof import Fingerprint


class MaskedFamily(NamedTuple):
    """Masked models of one type."""

    tensor_names: tuple[tuple[str, str], ...]
    """Regular expressions of names in a checkpoint, and their replacements: `body.…` for the
    encoder, `head.…` for the head of masks. All are applied, in this order."""
    activation: str | None = None
    """Activation of the head, by transformers' name; None for the config's `hidden_act`."""


MASKED_FAMILIES = {
    "bert": MaskedFamily(
        (
            (r"^cls\.predictions\.transform\.dense\.", "head.dense."),
            (r"^cls\.predictions\.transform\.LayerNorm\.", "head.layer_norm."),
            (r"^cls\.predictions\.bias$", "head.first_bias"),
            (r"^cls\.predictions\.decoder\.bias$", "head.bias"),
            (r"^cls\.predictions\.decoder\.weight$", "head.decoder"),
            (r"^bert\.", "body."),
        )
    ),
    "roberta": MaskedFamily(
        (
            (r"^lm_head\.(dense|layer_norm)\.", r"head.\1."),
            (r"^lm_head\.bias$", "head.first_bias"),
            (r"^lm_head\.decoder\.bias$", "head.bias"),
            (r"^lm_head\.decoder\.weight$", "head.decoder"),
            (r"^roberta\.", "body."),
        ),
        activation="gelu",  # whatever the config's hidden_act, as in transformers
    ),
}
"""Heads of masked models; keys are the `model_type` of the config."""
_UNUSED = re.compile(r"(^|\.)pooler\.|^cls\.seq_relationship\.")
"""Tensors of a next-sentence head."""
_OLDER_NAMES = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
_EMBEDDING = "body.embeddings.word_embeddings.weight"
SPARE_BIAS = "head.first_bias"
"""The second bias of the output layer, which is only used if the layer is tied."""


def masked_weights(
    weights: "Iterable[tuple[str, torch.Tensor]]",
    family: MaskedFamily,
    *,
    tied: bool,
) -> "Iterator[tuple[str, torch.Tensor]]":
    """Pass on the tensors that scores at masks depend on, each parameter once.

    The family's names become `body.…` (its encoder) and `head.…`; others stay. A `tied` head is the
    embedding and is excluded, and its two biases are one. The first bias of an untied head is
    passed on as `SPARE_BIAS`.

    Raises
    ------
    WeightsError
        A parameter has two names and two values; or the config ties the head to the embedding and
        the file has another head.
    """
    from logitbank.engine.weights.proof import fingerprint  # a plan needs no torch

    seen: dict[str, Fingerprint] = {}
    names: set[str] = set()
    for name, tensor in weights:
        if _UNUSED.search(name):
            continue
        canonical = name
        for pattern, replacement in (*_OLDER_NAMES, *family.tensor_names):
            canonical = re.sub(pattern, replacement, canonical)
        if tied and canonical == SPARE_BIAS:
            canonical = "head.bias"
        is_tied_head = tied and canonical == "head.decoder"
        shared = _EMBEDDING if is_tied_head else canonical
        again = is_tied_head or (shared == "head.bias" and shared in seen)
        if shared in (_EMBEDDING, "head.bias"):
            mark = fingerprint(tensor)
            if seen.setdefault(shared, mark) != mark:
                raise WeightsError(
                    f"{name} differs from {shared}, of which it should be a second name; correct "
                    "tie_word_embeddings in config.json, or do not use this checkpoint"
                )
        if not again:
            names.add(canonical)
            yield canonical, tensor
    if SPARE_BIAS in names and "head.bias" not in names:
        raise WeightsError(
            "the file has no bias for its output layer, which is not tied; save the checkpoint "
            "again with a current version of transformers"
        )
