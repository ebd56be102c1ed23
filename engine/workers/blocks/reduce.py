"""Reduce logits on the device that made them: row by row in NumPy on a CPU, in batches on a GPU."""

from collections.abc import Sequence

import numpy as np
import torch

from logitbank.engine.workers.blocks.reduce_gpu import reduce_rows
from logitbank.engine.workers.blocks.softmax import Softmax
from logitbank.engine.workers.blocks.states import BlockStates
from logitbank.errors import EngineError
from logitbank.store.deposits.entries import Entries
from logitbank.store.deposits.reduce import NOT_FINITE, BlockReducer, ReducedRows
from logitbank.store.format.layout import BlockData


class ReducingSink:
    """Feeds the reducer of one block from tensors.

    `finish` raises the errors: an exception inside an engine's step would leave that engine
    unusable for the next checkpoint.
    """

    def __init__(
        self,
        reducer: BlockReducer,
        states: BlockStates | None = None,
        *,
        batch_invariant: bool = False,
    ) -> None:
        """`batch_invariant` makes the result of a row independent of the other rows, bit for bit;
        `states` collects hidden states if the bank keeps them."""
        self._reducer, self._states, self._batch_invariant = reducer, states, batch_invariant
        self._failed: dict[int, EngineError] = {}
        layout = reducer.layout
        self._softmax = Softmax(layout.dtype if layout.keep.array == "logprobs" else None)

    def __call__(
        self,
        indices: Sequence[int],
        logits: torch.Tensor,
        hidden: torch.Tensor | None = None,
    ) -> None:
        if logits.device.type == "cpu":
            self._reduce_on_cpu(indices, logits.float())
        else:
            self._reduce_on_gpu(indices, logits.float())
        self._take_states(indices, logits, hidden)

    def finish(self) -> BlockData:
        """The block; may be called from any thread.

        Raises
        ------
        EngineError
            A row has no logits, or unusable ones, or the head does not give its logits from its
            hidden state.
        """
        if self._failed:
            raise self._failed[min(self._failed)]
        data = self._reducer.finish()
        if self._states is not None:
            self._states.prove(data.scores)
        return data

    def _reduce_on_cpu(self, indices: Sequence[int], logits: torch.Tensor) -> None:
        """Softmax, rounding, ranks and the highest logits of each row."""
        rows = zip(indices, logits.numpy(), self._softmax.rows(logits), strict=True)
        for i, row, normalised in rows:
            try:
                self._reducer.put(i, row, normalised)
                self._failed.pop(i, None)
            except EngineError as error:
                self._failed[i] = error

    def _reduce_on_gpu(self, indices: Sequence[int], logits: torch.Tensor) -> None:
        reducer = self._reducer
        tokens = torch.from_numpy(self._padded_tokens(indices)).to(logits.device)
        batch = reduce_rows(
            *(logits, tokens, reducer.layout, reducer.vocab_entries),
            batch_invariant=self._batch_invariant,
        )
        for i, finite, fits in zip(
            indices, batch.finite.tolist(), batch.fits.tolist(), strict=True
        ):
            if finite and fits:
                self._failed.pop(i, None)
                continue
            problem = (
                "a log-probability under float16's range; store float32 (--dtype float32)"
                if finite
                else f"logits that are not finite; {NOT_FINITE}"
            )
            self._failed[i] = EngineError(problem, query=reducer.rows[i])
        options, top = (
            Entries(e.token.int().cpu().numpy(), e.logit.cpu().numpy(), *e.counts.cpu().numpy())
            for e in (batch.options, batch.top)
        )
        reduced = ReducedRows(batch.logsumexp.cpu().numpy(), options, top)
        logprobs = None if batch.logprobs is None else batch.logprobs.cpu().numpy()
        reducer.put_rows(indices, reduced, logprobs)

    def _padded_tokens(self, indices: Sequence[int]) -> np.ndarray:
        """(n, w) the tokens that prompts name for each query, padded with zeros."""
        tokens = [self._reducer.option_tokens(i) for i in indices]
        padded = np.zeros((len(indices), max(map(len, tokens), default=0)), np.int64)
        for row, row_tokens in zip(padded, tokens, strict=True):
            row[: len(row_tokens)] = row_tokens
        return padded

    def _take_states(
        self, indices: Sequence[int], logits: torch.Tensor, hidden: torch.Tensor | None
    ) -> None:
        """Hidden states in float32, and the logits of the sampled rows."""
        if self._states is None:
            return
        try:
            if hidden is None:
                raise EngineError(
                    "the engine returned no input of its LM head; use --keep full, and report this"
                    " architecture",
                    query=self._reducer.rows[indices[0]],
                )
            states = hidden.float().cpu().numpy()
            self._states.put(indices, states)
            self._reducer.put_states(indices, states)
            for j, i in enumerate(indices):
                if i in self._states.sampled:
                    self._states.sampled[i] = logits[j].float().cpu().numpy().copy()
        except EngineError as error:
            self._failed.setdefault(indices[0], error)
