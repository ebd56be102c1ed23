"""Reduce logits where they are: in NumPy on a CPU, batched on a GPU."""

from collections.abc import Sequence

import numpy as np
import torch

from logitbank.engine.workers.blocks.states import BlockStates
from logitbank.errors import EngineError
from logitbank.store.deposits.reduce import (
    FLOAT16_MIN,
    NOT_FINITE,
    BlockReducer,
    Entries,
    Normalised,
    ReducedRow,
)

_FEW = 4
"""Rows whose float64 copies, of 50,304 values each, stay in a processor's cache."""


class ReducingSink:
    """Feeds a BlockReducer from tensors.

    The first error is kept and raised by `raise_pending`, because an exception inside an engine's
    step would leave that engine unusable for the next checkpoint.
    """

    def __init__(
        self,
        reducer: BlockReducer,
        states: BlockStates | None = None,
        *,
        layers: Sequence[int] = (),
    ) -> None:
        """`states` are given where a bank keeps what the head multiplied; `layers` are those whose
        states come beside, of which the block may keep some."""
        self._reducer, self._states = reducer, states
        self._columns = [layers.index(layer) for layer in reducer.layout.layers if layer in layers]
        self._failed: dict[int, EngineError] = {}

    def __call__(
        self,
        indices: Sequence[int],
        logits: torch.Tensor,
        hidden: torch.Tensor | None = None,
        layers: torch.Tensor | None = None,
    ) -> None:
        if logits.device.type == "cpu":
            self._on_cpu(indices, logits.float())
        else:
            self._on_device(indices, logits.float())
        if self._states is not None:
            self._keep(self._states, indices, logits, hidden, layers)

    def _keep(
        self,
        states: BlockStates,
        indices: Sequence[int],
        logits: torch.Tensor,
        hidden: torch.Tensor | None,
        layers: torch.Tensor | None,
    ) -> None:
        try:
            if hidden is None:
                raise EngineError(
                    "the engine did not tell what its head multiplied; use --keep full, and report"
                    " this architecture",
                    query=self._reducer.rows[indices[0]],
                )
            rows = hidden.float().cpu().numpy()
            states.put(indices, logits, rows)
            beside = None
            if layers is not None and self._columns:
                beside = layers[:, self._columns].float().cpu().numpy()
            for at, (i, state) in enumerate(zip(indices, rows, strict=True)):
                self._reducer.put_hidden(i, state, None if beside is None else beside[at])
        except EngineError as error:
            self._failed.setdefault(indices[0], error)

    def _on_cpu(self, indices: Sequence[int], logits: torch.Tensor) -> None:
        """Softmax and rounding of a few rows at a time."""
        full = self._reducer.layout.keep.array == "logprobs"
        dtype = getattr(torch, self._reducer.layout.dtype)
        for start in range(0, len(indices), _FEW):
            few = logits[start : start + _FEW]
            exact = few.double()
            logsumexp = torch.logsumexp(exact, dim=1)
            logprobs = exact.sub_(logsumexp[:, None]).to(dtype) if full else None
            of_few = zip(indices[start : start + _FEW], few.numpy(), strict=True)
            for j, (i, row) in enumerate(of_few):
                stored = None if logprobs is None else logprobs[j].numpy()
                try:
                    self._reducer.put(i, row, Normalised(logsumexp[j].item(), stored))
                    self._failed.pop(i, None)
                except EngineError as error:
                    self._failed[i] = error

    def raise_pending(self) -> None:
        """Raise the first row's error, if the last logits of any row were unusable."""
        if self._failed:
            raise self._failed[min(self._failed)]

    def _on_device(self, indices: Sequence[int], logits: torch.Tensor) -> None:
        layout, entries = self._reducer.layout, self._reducer.vocab_entries
        finite = torch.isfinite(logits).all(dim=1)
        # Of logits less their maximum, so that float32 loses a few 1e-7 of it whatever their size.
        highest = logits.amax(dim=1, keepdim=True)
        shifted = logits - highest
        share = torch.logsumexp(shifted, dim=1)
        logsumexp = highest[:, 0].double() + share.double()
        logprobs = shifted - share[:, None]
        tokens = [self._reducer.tokens_of(i) for i in indices]
        width = max(map(len, tokens), default=0)
        padded = np.zeros((len(indices), width), np.int64)
        for row, tokens_of_row in zip(padded, tokens, strict=True):
            row[: len(tokens_of_row)] = tokens_of_row
        options = batch_entries(logits, torch.from_numpy(padded).to(logits.device), entries)
        top = top_tokens(logits, layout.keep.k)
        tops = batch_entries(logits, top, entries)
        full = layout.keep.array == "logprobs"
        rounds = full and layout.dtype == "float16"
        fits = (logprobs.amin(dim=1) >= FLOAT16_MIN) | (not rounds)
        stored = logprobs.to(getattr(torch, layout.dtype)).cpu().numpy() if full else None
        lse, ok, fit = logsumexp.cpu().numpy(), finite.cpu().numpy(), fits.cpu().numpy()
        for j, i in enumerate(indices):
            if not (ok[j] and fit[j]):
                what = (
                    f"logits that are not finite; {NOT_FINITE}"
                    if not ok[j]
                    else "a log-probability under float16's range; store float32 (--dtype float32)"
                )
                self._failed[i] = EngineError(what, query=self._reducer.rows[i])
                continue
            self._failed.pop(i, None)
            listed = Entries(*(f[j, : len(tokens[j])] for f in options))
            best = Entries(*(f[j] for f in tops))
            self._reducer.put_reduced(
                i, ReducedRow(float(lse[j]), listed, best), None if stored is None else stored[j]
            )


def top_tokens(logits: torch.Tensor, k: int) -> torch.Tensor:
    """The k tokens (n, k) of highest logit in each row; of equal ones that of the lowest number.

    `topk` promises no order among equal logits, and not which of them it lists last.
    """
    values, tokens = torch.topk(logits, min(k + 1, logits.shape[1]), dim=1)
    tokens = tokens[:, :k].sort(dim=1).values
    order = logits.gather(1, tokens).sort(dim=1, descending=True, stable=True).indices
    tokens = tokens.gather(1, order)
    if k < logits.shape[1] and len(rows := (values[:, k - 1] == values[:, k]).nonzero()[:, 0]):
        ranked = logits[rows].sort(dim=1, descending=True, stable=True).indices
        tokens[rows] = ranked[:, :k]
    return tokens


def batch_entries(logits: torch.Tensor, tokens: torch.Tensor, vocab_entries: int) -> Entries:
    """Logit, rank and ties of `tokens` (n, k) in `logits` (n, v): fields (n, k), on the host."""
    values = logits.gather(1, tokens)
    padding = logits[:, vocab_entries:]
    fields = torch.zeros((4, *tokens.shape), dtype=torch.int32, device=logits.device)
    for j in range(tokens.shape[1]):  # one at a time, so that no (n, k, v) array is made
        z = values[:, j : j + 1]
        fields[0, :, j] = (logits > z).sum(dim=1) + 1
        fields[1, :, j] = (logits == z).sum(dim=1) - 1
        fields[2, :, j] = (padding > z).sum(dim=1)
        fields[3, :, j] = (padding == z).sum(dim=1) - (tokens[:, j] >= vocab_entries).int()
    return Entries(tokens.int().cpu().numpy(), values.cpu().numpy(), *fields.cpu().numpy())
