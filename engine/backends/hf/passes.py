"""Passes of a model: a batch goes up, and logits of its queries come of it.

Nothing between asks what a tensor holds, which would stop the host until a GPU has come so far.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
import transformers

from logitbank.engine.backends.hf.batches import Batch, Input
from logitbank.engine.backends.hf.head import ClassHead, SelectingHead
from logitbank.engine.backends.hf.model import output_logits
from logitbank.engine.backends.hf.one_length import model_inputs, no_padding
from logitbank.engine.backends.hf.packed import PackedInputs, added_mask, put_packs
from logitbank.engine.backends.hf.packs import Pack
from logitbank.engine.backends.hf.shapes import Shape
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.store.format.schema import Head

Outputs = tuple[torch.Tensor, torch.Tensor | None]
"""Logits of a batch's queries, and what was multiplied to make them."""


class Passes:
    """Runs batches through a model, whose heads it replaces by ones that look where it is asked."""

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
        self.head = SelectingHead(model, each=settings.deterministic)
        self.heads: dict[Head, SelectingHead | ClassHead]
        self.heads = {"next_token" if self._causal else "mask": self.head}
        if settings.next_sentence:
            self.heads["next_sentence"] = ClassHead(model.cls.seq_relationship)

    def outputs(self, batch: Batch, head: Head) -> Outputs:
        """Run a batch whose queries are for this head."""
        if batch.shape is None:
            return self._of_sequences(batch, head)
        shape, packs = batch.shape, cast(Sequence[Pack], batch.sequences)
        numbers = torch.empty(shape.numbers, dtype=torch.int64)
        put_packs(numbers.numpy(), packs, shape)
        logits, hidden = self.of_packs(shape, numbers.to(self._device))
        asked = len(batch.queries)
        return logits[:asked], None if hidden is None else hidden[:asked]

    def of_packs(self, shape: Shape, sent: torch.Tensor) -> Outputs:
        """All outputs of a shape, those of padding too."""
        given = PackedInputs.of(sent, shape)
        self.head.select(rows=given.rows, positions=given.positions)
        output = self._model(
            input_ids=given.ids,
            position_ids=given.depths,
            attention_mask=added_mask(given.ends, self._dtype),
            use_cache=False,
        )
        logits = output_logits(output, "next_token")
        if logits.dim() == 3:  # a head that could not be told apart ran on every position
            return logits[given.rows, given.positions], None
        return logits, self.head.hidden

    def _of_sequences(self, batch: Batch, head: Head) -> Outputs:
        places = torch.tensor([batch.rows, batch.positions], device=self._device)
        rows, positions = places
        none = slice(0 if head == "next_sentence" else None)
        self.head.select(rows=rows[none], positions=positions[none])
        sequences = cast(Sequence[Input], batch.sequences)
        inputs = self._inputs(sequences)
        with no_padding(len(sequences[0].ids)):
            logits = output_logits(self._model(**inputs), head)
        if head == "next_sentence":
            hidden = self.heads[head].hidden
            assert hidden is not None
            return logits[rows], hidden[rows]
        if logits.dim() == 3:
            return logits[rows, positions], None
        return logits, self.head.hidden

    def _inputs(self, sequences: Sequence[Input]) -> dict[str, Any]:
        return model_inputs(self._model, sequences, device=self._device, causal=self._causal)
