"""The output heads of a model, in float32 and on chosen positions only."""

from typing import Any

import torch
import transformers

from logitbank.engine.backends.products import linear
from logitbank.engine.backends.torch_precision import in_float32


class AtHead(Exception):  # noqa: N818 (nothing is wrong)
    """A pass has come to the head that it was run for."""


class SelectingHead:
    """Makes a model's own forward apply its output head, in float32, to chosen positions only.

    The head's input is replaced by the chosen rows, so what the model does to its logits afterwards
    (scaling, soft caps) still happens. A model that names no linear head is left as it is.
    """

    def __init__(self, model: transformers.PreTrainedModel, *, each: bool = False) -> None:
        """`each` position by itself: the sums of a product depend on how many rows it has."""
        self._each = each
        self._float32 = _InFloat32()
        head: Any = model.get_output_embeddings()
        self.layer = head if isinstance(head, torch.nn.Linear) else None
        self._rows = self._positions = torch.empty(0, dtype=torch.long)
        self.hidden: torch.Tensor | None = None
        """Rows that the last pass multiplied, float32; None where it did not multiply by this
        head's matrix alone."""
        self.stops = False
        """A pass ends where these rows are known: with AtHead."""
        self.outputs: int = int(model.config.vocab_size)
        if self.layer is not None:
            self.outputs = self.layer.weight.shape[0]
            head.forward = self._forward

    def select(self, *, rows: torch.Tensor, positions: torch.Tensor) -> None:
        self._rows, self._positions = rows, positions
        self.hidden = None

    def _forward(self, hidden: torch.Tensor) -> torch.Tensor:
        assert self.layer is not None
        self.hidden = chosen = hidden[self._rows, self._positions].float()
        if self.stops:
            raise AtHead
        weight, bias = self._float32.of(self.layer)
        with in_float32():
            if not self._each:
                return linear(chosen, weight, bias)
            return torch.cat([linear(part, weight, bias) for part in torch.split(chosen, 1)])


class ClassHead:
    """Makes a layer of classes compute in float32, whatever its weights are in."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        self.layer = layer
        self._float32 = _InFloat32()
        self.hidden: torch.Tensor | None = None
        """Rows that the last pass multiplied, float32."""
        self.stops = False
        """As of a `SelectingHead`."""
        layer.forward = self._forward  # type: ignore[method-assign]

    def _forward(self, input: torch.Tensor) -> torch.Tensor:
        self.hidden = input.float()
        if self.stops:
            raise AtHead
        with in_float32():
            return linear(self.hidden, *self._float32.of(self.layer))


class _InFloat32:
    """A layer's parameters in float32, made once for each checkpoint, in the place of the one
    before: of 6.9B they are 0.8 GB."""

    def __init__(self) -> None:
        self._of: tuple[int, ...] = ()
        self._weight = torch.empty(0)
        self._bias: torch.Tensor | None = None

    def of(self, layer: torch.nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
        bias: torch.Tensor | None = layer.bias
        parts = [part for part in (layer.weight, bias) if part is not None]
        if layer.weight.dtype == torch.float32:
            return layer.weight, None if bias is None else bias.float()
        # PyTorch counts what is written into a tensor, such as another checkpoint's weights.
        now = tuple(number for part in parts for number in (part.data_ptr(), part._version))
        if now != self._of:
            self._weight = _put(self._weight, layer.weight)
            self._bias = None if bias is None else _put(self._bias, bias)
            self._of = now
        return self._weight, self._bias


def _put(own: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    """`other` in float32, where `own` is if that fits: a recorded pass reads it there."""
    if own is None or own.shape != other.shape or own.device != other.device:
        return other.float()
    return own.copy_(other)
