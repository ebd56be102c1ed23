"""Masked models on vLLM: its encoder of a family, with our head, which runs on masks only.

vLLM's `BertForMaskedLM` applies the head to every token, and vLLM has no head for RoBERTa.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import layer_norm
from transformers.activations import ACT2FN
from vllm import ModelRegistry
from vllm.config import VllmConfig
from vllm.model_executor.models.bert import BertEmbedding, BertModel
from vllm.model_executor.models.interfaces_base import attn_type, default_pooling_type
from vllm.model_executor.models.roberta import RobertaEmbedding
from vllm.model_executor.models.utils import AutoWeightsLoader

from logitbank.engine.backends.heads import Layer, StreamedHead
from logitbank.engine.backends.matmul import linear
from logitbank.engine.backends.torch_precision import in_float32
from logitbank.engine.backends.vllm.engine import Arguments, VllmBackend, Weights
from logitbank.engine.backends.vllm.positions import PositionPooler, Request
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.masked import (
    MASKED_FAMILIES,
    SPARE_BIAS,
    MaskedFamily,
    masked_weights,
)
from logitbank.engine.weights.proof import Ledger
from logitbank.store.format.heads import Operation
from logitbank.store.format.schema import Head, Query

_CLASS = "LogitbankForMaskedLM"


class VllmMaskedBackend(VllmBackend):
    """BERT and RoBERTa: logits at masks, every sequence run once and whole."""

    def _prepare(self, folder: Path, arguments: Arguments) -> Arguments:
        ModelRegistry.register_model(_CLASS, ModelForMasks)
        self._family = MASKED_FAMILIES[ModelConfig.read(folder).model_type]
        return arguments | {
            "hf_overrides": {"architectures": [_CLASS]},
            "max_num_seqs": 4 * self._settings.max_sequences,
        }

    def _watch_head(self) -> tuple[Operation, ...]:
        return ()  # the head gives its inputs itself

    def _recorded(self, weights: Weights) -> tuple[Ledger, Weights]:
        # The head multiplies by the embedding itself, so a tied one cannot be stale.
        ledger = Ledger(self._model_config.dtype, tied=False, device=self._device)
        named = masked_weights(weights, self._family, tied=self._tied)
        return ledger, ledger.record(pair for pair in named if pair[0] != SPARE_BIAS)

    def _requests(self, queries: Sequence[Query]) -> list[Request]:
        rows: dict[tuple[int, ...], list[int]] = {}
        for i, query in enumerate(queries):
            rows.setdefault(query.ids, []).append(i)
        return [Request(*item) for item in sorted(rows.items())]

    def _layers(self, streamed: StreamedHead) -> dict[Head, Layer]:
        return {"mask": self._llm.apply_model(_output_layer)[0]}


def _output_layer(model: Any) -> Layer:
    layer: Layer = model.head.layer
    return layer


def _linear(rows: torch.Tensor, layer: nn.Linear | Layer) -> torch.Tensor:
    """Rows (n, width) float32 times a layer's weight, and its bias; float32."""
    assert layer.bias is not None
    return linear(rows, layer.weight.float(), layer.bias.float())


class _Head(nn.Module):
    """Transform and output layer of masked models, in float32."""

    def __init__(self, config: Any, family: MaskedFamily, embedding: nn.Module) -> None:
        super().__init__()
        width, self._vocab, self._eps = config.hidden_size, config.vocab_size, config.layer_norm_eps
        self.dense = nn.Linear(width, width)
        self.layer_norm = nn.LayerNorm(width, eps=self._eps)
        self.bias = nn.Parameter(torch.zeros(self._vocab))
        self.decoder = None
        if not config.tie_word_embeddings:
            self.decoder = nn.Parameter(torch.zeros(self._vocab, width))
        self._embedding: list[Any] = [embedding]  # in a list, so that it has no second name here
        self._activation = ACT2FN[family.activation or config.hidden_act]

    @in_float32()
    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states (n, width) to logits (n, v) and the inputs of the output layer; float32."""
        x = self._activation(_linear(hidden.float(), self.dense))
        shape, norm = (hidden.shape[1],), self.layer_norm
        x = layer_norm(x, shape, norm.weight.float(), norm.bias.float(), self._eps)
        return _linear(x, self.layer), x

    @property
    def layer(self) -> Layer:
        """The output layer."""
        embedding = self._embedding[0].weight[: self._vocab]  # vLLM pads it
        return Layer(embedding if self.decoder is None else self.decoder, self.bias)


@attn_type("encoder_only")
@default_pooling_type(tok_pooling_type="ALL")
class ModelForMasks(nn.Module):
    """vLLM's encoder of a family with a head for chosen positions."""

    is_pooling_model = True

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        family = MASKED_FAMILIES[config.model_type]
        embedding = RobertaEmbedding if config.model_type == "roberta" else BertEmbedding
        self.body = BertModel(
            vllm_config=vllm_config,
            prefix=f"{prefix}.body" if prefix else "body",
            embedding_class=embedding,
        )
        self.head = _Head(config, family, self.body.embeddings.word_embeddings)
        self.pooler = PositionPooler(self.head)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = self.body.embed_input_ids(input_ids)
        return embedded

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights)
        return loaded

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        hidden: torch.Tensor = self.body(
            input_ids=input_ids,
            positions=positions,
            inputs_embeds=inputs_embeds,
            intermediate_tensors=intermediate_tensors,
        )
        return hidden
