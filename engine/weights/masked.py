"""The tensors of a masked model's checkpoint that its scores depend on, under one set of names.

Published checkpoints also contain unused heads, parameters under two names, and older names. The
remaining tensors fit the models of both engines.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from logitbank.engine.weights.masked_family import MaskedFamily
from logitbank.engine.weights.proof import Fingerprint, fingerprint
from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

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
