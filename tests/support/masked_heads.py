"""The head of masked models on vLLM, without an engine. For a process of its own."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import gelu, layer_norm, linear

from logitbank.engine.backends.vllm.masked import _forget_casts, _Head, _NextSentenceHead
from logitbank.engine.weights.masked_family import masked_families

Rows = list[np.ndarray]


def swapped_head(dtype: str, tied: bool) -> tuple[Rows, Rows, int]:
    """Logits of two checkpoints, what they ought to be, and tensors that were cast for both.

    The second one's weights are written where those of the first are, as vLLM does.
    """
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    config = SimpleNamespace(
        hidden_size=16,
        vocab_size=40,
        layer_norm_eps=1e-5,
        tie_word_embeddings=tied,
        hidden_act="gelu",
    )
    embedding = torch.nn.Embedding(48, 16).to(kind)  # padded
    head: Any = _Head(config, masked_families()["bert"], embedding).to(kind)
    classes: Any = _NextSentenceHead(config).to(kind)
    model = SimpleNamespace(heads={"mask": head, "next_sentence": classes})
    states = torch.randn(5, 16).to(kind)
    found, expected, cast = Rows(), Rows(), 0
    for _ in range(2):
        _forget_casts(model)
        for module in (embedding, head, classes):
            for parameter in module.parameters():
                parameter.data.copy_(torch.randn_like(parameter))
        for one in (head, classes):
            found += [one(states)[0].numpy(force=True) for _ in range(3)]
            expected += 3 * [_by_hand(one, states).numpy(force=True)]
            cast += len(one.casts._made)
    return found, expected, cast


def _by_hand(head: Any, states: torch.Tensor) -> torch.Tensor:
    x = linear(states.float(), head.dense.weight.float(), head.dense.bias.float())
    if isinstance(head, _NextSentenceHead):
        return linear(x.tanh(), head.output.weight.float(), head.output.bias.float())
    norm = head.layer_norm
    x = layer_norm(gelu(x), (16,), norm.weight.float(), norm.bias.float(), 1e-5)
    matrix = head._embedding[0].weight[:40] if head.decoder is None else head.decoder
    return linear(x, matrix.float(), head.bias.float())
