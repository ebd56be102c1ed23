"""LM heads as a bank stores them, and the proof that they give a model's logits."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from logitbank.engine.backends.protocol import Sink, Tokens
from logitbank.engine.weights.heads import is_embedding, is_head
from logitbank.store.format.heads import Operation, OutputHead
from logitbank.store.format.schema import Head, Query

RELATIVE = 1e-4
"""Largest difference of a logit, relative to the row's largest magnitude or 1. Float32 sums in
another order differ by about 1e-6."""


class Layer(NamedTuple):
    """Parameters of a head in an engine."""

    weight: torch.Tensor
    """(v, width)"""
    bias: torch.Tensor | None
    """(v,)"""


class StreamedHead:
    """Finds a causal model's LM head among the tensors that an engine loads."""

    def __init__(self) -> None:
        self._head: torch.Tensor | None = None
        self._embedding: torch.Tensor | None = None
        self._bias: torch.Tensor | None = None

    def watch(
        self, weights: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass the tensors on, and remember those that may be the head's."""
        for name, tensor in weights:
            if is_head(name):
                self._head = tensor
            elif is_embedding(name) and self._embedding is None:
                self._embedding = tensor
            elif name.endswith(".bias") and is_head(name.removesuffix("bias") + "weight"):
                self._bias = tensor
            yield name, tensor

    def layer(self, outputs: int) -> Layer | None:
        """The head, or the embedding if it is tied; None if there was neither."""
        weight = self._embedding if self._head is None else self._head
        if weight is None:
            return None
        return Layer(weight[:outputs], None if self._bias is None else self._bias[:outputs])


def output_head(layer: Layer) -> OutputHead:
    """A head of these parameters, in the narrowest dtype that holds each weight exactly.

    The dtype depends on the values alone, so every engine stores the same head.
    """
    wide = layer.weight.detach().float().cpu()
    bias = None if layer.bias is None else layer.bias.detach().float().cpu().numpy().copy()
    if torch.equal((half := wide.half()).float(), wide):
        return OutputHead(half.numpy(), "float16", bias)
    if torch.equal((brain := wide.bfloat16()).float(), wide):
        bits = brain.view(torch.int16).numpy().view(np.uint16)
        return OutputHead(bits, "bfloat16", bias)
    return OutputHead(wide.numpy().copy(), "float32", bias)


def allowed(largest: np.ndarray) -> np.ndarray:
    """Allowed difference of a logit, from the largest magnitude of its row."""
    return np.asarray(RELATIVE * np.maximum(1, largest))


def proved_heads(
    layers: Mapping[Head, Layer],
    postprocessing: Sequence[tuple[Operation, ...]],
    score: Callable[[Sequence[Query], Sink], Tokens],
    queries: Sequence[Query],
) -> dict[Head, OutputHead]:
    """The heads that give a model's own logits of a few queries.

    Each entry of `postprocessing` is tried in order, and a head gets the first one that gives the
    model's logits. If no entry does, the head is excluded.
    """
    heads: dict[Head, OutputHead] = {}
    for name, layer in layers.items():
        batches: list[tuple[np.ndarray, np.ndarray]] = []
        score([replace(query, head=name) for query in queries], partial(_collect, batches))
        if not batches:
            continue
        logits, states = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        limit = allowed(np.abs(logits).max(axis=1, keepdims=True))
        plain = output_head(layer)
        for operations in postprocessing:
            head = replace(plain, after=operations)
            if (np.abs(head.logits(states) - logits) <= limit).all():
                heads[name] = head
                break
    return heads


def _collect(
    batches: list[tuple[np.ndarray, np.ndarray]],
    _: object,
    logits: torch.Tensor,
    hidden: torch.Tensor | None = None,
) -> None:
    """A sink for the logits and the inputs of the head, if both are known."""
    if hidden is not None:
        batches.append((logits.float().cpu().numpy(), hidden.float().cpu().numpy()))


def trial_queries(vocab: int, longest: int, language: str = "") -> list[Query]:
    """Four random sequences of at most four tokens."""
    draw = random.Random(0)
    length = min(4, longest)
    drawn = [tuple(draw.randrange(vocab) for _ in range(length)) for _ in range(4)]
    return [Query(ids, length - 1, language=language) for ids in drawn]
