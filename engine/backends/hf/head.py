"""The output head of a model, in float32 and on chosen positions only."""

from typing import Any

import torch
import transformers


class SelectingHead:
    """Makes a model's own forward apply its output head, in float32, to chosen positions only.

    The head's input is replaced by the chosen rows, so what the model does to its logits afterwards
    (scaling, soft caps) still happens. A model that names no linear head is left as it is.
    """

    def __init__(self, model: transformers.PreTrainedModel, *, each: bool = False) -> None:
        """`each` position by itself: the sums of a product depend on how many rows it has."""
        self._each = each
        head: Any = model.get_output_embeddings()
        self._head = head if isinstance(head, torch.nn.Linear) else None
        self._rows = self._positions = torch.empty(0, dtype=torch.long)
        self.outputs: int = int(model.config.vocab_size)
        if self._head is not None:
            self.outputs = self._head.weight.shape[0]
            head.forward = self._forward

    def select(self, *, rows: torch.Tensor, positions: torch.Tensor) -> None:
        self._rows, self._positions = rows, positions

    def _forward(self, hidden: torch.Tensor) -> torch.Tensor:
        assert self._head is not None
        chosen = hidden[self._rows, self._positions].float()
        weight: torch.Tensor = self._head.weight.float()
        bias: torch.Tensor | None = self._head.bias
        if bias is not None:
            bias = bias.float()
        count = 1 if self._each else max(1, len(chosen))
        parts = torch.split(chosen, count)
        return torch.cat([torch.nn.functional.linear(part, weight, bias) for part in parts])


def in_float32(layer: torch.nn.Linear) -> None:
    """Make a layer compute in float32, whatever its weights are in."""

    def forward(input: torch.Tensor) -> torch.Tensor:
        weight, bias = layer.weight.float(), layer.bias.float()
        return torch.nn.functional.linear(input.float(), weight, bias)

    layer.forward = forward  # type: ignore[method-assign]
