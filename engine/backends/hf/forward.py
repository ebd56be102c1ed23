"""The forward pass of a batch: inputs on the device, logits of its queries, heads in float32."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
import transformers

from logitbank.engine.backends.hf.batches import Batch, Input
from logitbank.engine.backends.hf.last_layer import LastLayer
from logitbank.engine.backends.hf.model import output_logits
from logitbank.engine.backends.hf.packed import added_mask, packed_inputs
from logitbank.engine.backends.hf.packs import Pack
from logitbank.engine.backends.matmul import linear
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.torch_precision import in_float32
from logitbank.store.format.schema import Head

Outputs = tuple[torch.Tensor, torch.Tensor | None]
"""Logits of a batch's queries, and the head's inputs; None where these are not known."""


class Forward:
    """Runs batches through a model, whose heads it replaces by heads in float32."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        settings: EngineSettings,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._model, self._device, self._dtype = model, device, dtype
        self._causal = settings.task == "causal"
        self.head = SelectingHead(model, batch_invariant=settings.deterministic)
        self._last_layer = LastLayer(model)
        self.heads: dict[Head, SelectingHead | ClassHead]
        self.heads = {"next_token" if self._causal else "mask": self.head}
        if settings.next_sentence:
            self.heads["next_sentence"] = ClassHead(model.cls.seq_relationship)

    def __call__(self, batch: Batch, head: Head) -> Outputs:
        """Run a batch whose queries are all for this head."""
        rows, positions = torch.tensor([batch.rows, batch.positions], device=self._device)
        if head == "next_sentence":
            self.head.select(rows=rows[:0], positions=positions[:0])  # the model runs both heads
            logits = output_logits(self._model(**self._inputs(batch)), head)
            hidden = self.heads[head].hidden
            assert hidden is not None
            return logits[rows], hidden[rows]
        self.head.select(rows=rows, positions=positions)
        # The trial of packing compares this with all positions of each context alone.
        some = self._last_layer.only(rows, positions) if batch.packed else nullcontext()
        with some:
            logits = output_logits(self._model(**self._inputs(batch)), head)
        if logits.dim() == 3:  # the model has no head that can be replaced
            return logits[rows, positions], None
        return logits, self.head.hidden

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        if not batch.packed:
            sequences = cast(Sequence[Input], batch.sequences)
            inputs = sequence_inputs(self._model, sequences, device=self._device)
            return inputs | ({"use_cache": False} if self._causal else {})
        ids, depths, ends = packed_inputs(cast(Sequence[Pack], batch.sequences)).to(self._device)
        mask = added_mask(ends, self._dtype)
        return {
            "input_ids": ids,
            "position_ids": depths,
            "attention_mask": mask,
            "use_cache": False,
        }


def sequence_inputs(
    model: transformers.PreTrainedModel, sequences: Sequence[Input], *, device: torch.device
) -> dict[str, torch.Tensor]:
    """The model's inputs for sequences of one length and one language."""
    ids = torch.tensor([s.ids for s in sequences])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if any(s.segments for s in sequences):
        zeros = (0,) * ids.shape[1]
        inputs["token_type_ids"] = torch.tensor([s.segments or zeros for s in sequences])
    if language := sequences[0].language:
        index = model.config.languages.index(language)
        inputs["lang_ids"] = torch.full(ids.shape[:1], index)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def a_language(model: transformers.PreTrainedModel) -> str:
    """A language of the model; "" if it has none."""
    return next(iter(getattr(model.config, "languages", None) or ()), "")


class SelectingHead:
    """Makes a model's own forward apply its output head, in float32, to chosen positions only.

    Only the head's input is replaced, so a model still scales or caps its logits afterwards. A
    model without a linear head is unchanged.
    """

    def __init__(
        self, model: transformers.PreTrainedModel, *, batch_invariant: bool = False
    ) -> None:
        """`batch_invariant` multiplies each position alone: rounding depends on the row count."""
        self._batch_invariant = batch_invariant
        self._float32 = _Float32Parameters()
        head: Any = model.get_output_embeddings()
        self.layer = head if isinstance(head, torch.nn.Linear) else None
        self._rows = self._positions = torch.empty(0, dtype=torch.long)
        self.hidden: torch.Tensor | None = None
        """Inputs of the head in the last pass, float32; None if the head was not used."""
        self.outputs: int = int(model.config.vocab_size)
        if self.layer is not None:
            self.outputs = self.layer.weight.shape[0]
            head.forward = self._forward

    def select(self, *, rows: torch.Tensor, positions: torch.Tensor) -> None:
        """Choose the positions of the next pass."""
        self._rows, self._positions = rows, positions
        self.hidden = None

    def _forward(self, hidden: torch.Tensor) -> torch.Tensor:
        assert self.layer is not None
        self.hidden = chosen = hidden[self._rows, self._positions].float()
        weight, bias = self._float32.of(self.layer)
        with in_float32():
            if not self._batch_invariant:
                return linear(chosen, weight, bias)
            return torch.cat([linear(part, weight, bias) for part in torch.split(chosen, 1)])


class ClassHead:
    """Makes a classification layer compute in float32, whatever the dtype of its weights."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        self.layer = layer
        self._float32 = _Float32Parameters()
        self.hidden: torch.Tensor | None = None
        """Inputs of the layer in the last pass, float32."""
        layer.forward = self._forward  # type: ignore[method-assign]

    def _forward(self, input: torch.Tensor) -> torch.Tensor:
        self.hidden = input.float()
        with in_float32():
            return linear(self.hidden, *self._float32.of(self.layer))


class _Float32Parameters:
    """A layer's parameters in float32, cast once per checkpoint: 0.8 GB for a 6.9B model."""

    def __init__(self) -> None:
        self._version: tuple[int, ...] = ()
        self._cast: tuple[torch.Tensor, torch.Tensor | None]

    def of(self, layer: torch.nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
        parts = [part for part in (layer.weight, layer.bias) if part is not None]
        # PyTorch counts writes into a tensor, such as another checkpoint's weights.
        version = tuple(number for part in parts for number in (part.data_ptr(), part._version))
        if version != self._version:
            bias = None if layer.bias is None else layer.bias.float()
            self._cast = layer.weight.float(), bias  # the tensor itself if it is float32
            self._version = version
        return self._cast
