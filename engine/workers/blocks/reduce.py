"""Reduce logits where they are: row by row in NumPy on a CPU, in batches on a GPU."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from logitbank.engine.backends.copies import beside
from logitbank.engine.workers.blocks.on_device import Listed, OnDevice, reduce_rows
from logitbank.engine.workers.blocks.softmax import Softmax
from logitbank.engine.workers.blocks.states import BlockStates
from logitbank.errors import EngineError
from logitbank.store.deposits.entries import Entries
from logitbank.store.deposits.reduce import NOT_FINITE, BlockReducer, ReducedRows
from logitbank.store.format.layout import BlockData


class Collected(NamedTuple):
    """One block: what is written of it, and its states where a bank keeps them."""

    reducer: BlockReducer
    states: BlockStates | None = None


class ReducingSink:
    """Feeds reducers from tensors; the queries asked for are those of its blocks, in their order.

    What a GPU has reduced is taken by `finish`, so that no batch waits for the host. An error is
    kept and raised there too, because an exception inside an engine's step would leave that engine
    unusable for the next checkpoint.
    """

    def __init__(self, *blocks: Collected, each: bool = False) -> None:
        """With `each`, what comes of a row does not depend on others, to the last bit."""
        self._blocks, self._each = blocks, each
        first = blocks[0].reducer
        self._layout, self._entries = first.layout, first.vocab_entries
        self._start, self._size = first.rows.start, len(first.rows)
        self._failed: dict[int, EngineError] = {}
        self._begun: list[Callable[[], None]] = []
        full = self._layout.keep.array == "logprobs"
        self._softmax = Softmax(self._layout.dtype if full else None)

    def __call__(
        self,
        indices: Sequence[int],
        logits: torch.Tensor,
        hidden: torch.Tensor | None = None,
    ) -> None:
        if logits.device.type == "cpu":
            self._on_cpu(indices, logits.float())
            self._take_states(indices, *self._states_of(indices, logits, hidden))
        else:
            self._on_device(indices, logits, hidden)

    def finish(self) -> list[BlockData]:
        """The blocks, in their order; from any thread.

        Raises
        ------
        EngineError
            The last logits of a row were unusable, or not what the head makes of its state, or none
            came.
        """
        while self._begun:
            self._begun.pop(0)()
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._finished(block) for block in self._blocks]

    @property
    def rows(self) -> range:
        """Rows of the deposit that are asked for."""
        return range(self._start, self._blocks[-1].reducer.rows.stop)

    @staticmethod
    def _finished(block: Collected) -> BlockData:
        data = block.reducer.finish()
        if block.states is not None:
            block.states.prove(data.scores)
        return data

    def _on_cpu(self, indices: Sequence[int], logits: torch.Tensor) -> None:
        """Softmax, rounding, ranks and the highest of each row."""
        of_each = zip(indices, logits.numpy(), self._softmax.rows(logits), strict=True)
        for i, row, normalised in of_each:
            block, at = divmod(i, self._size)
            try:
                self._blocks[block].reducer.put(at, row, normalised)
                self._failed.pop(i, None)
            except EngineError as error:
                self._failed[i] = error

    def _on_device(
        self,
        indices: Sequence[int],
        logits: torch.Tensor,
        hidden: torch.Tensor | None = None,
    ) -> None:
        """Begin the reduction of a batch, and the copies of what comes of it."""
        stream = beside(logits.device)
        tokens = self._padded_tokens(indices)
        with stream.after(*(t for t in (logits, hidden) if t is not None)) as piece:
            on_device = stream.to_device(torch.from_numpy(tokens))
            reduced = reduce_rows(
                *(logits.float(), on_device, self._layout, self._entries), each=self._each
            )
            fields = [
                None if field is None else Listed(*map(stream.to_host, field))
                if isinstance(field, Listed) else stream.to_host(field)
                for field in reduced
            ]  # fmt: skip
            states = self._states_of(indices, logits, hidden, stream.to_host)
        on_host = OnDevice(*fields)  # type: ignore[arg-type]

        def take() -> None:
            piece.wait()
            self._take_rows(indices, on_host)
            self._take_states(indices, *states)

        self._begun.append(take)

    def _padded_tokens(self, indices: Sequence[int]) -> np.ndarray:
        """(n, w) the tokens that prompts name for each query, with zeros behind."""
        places = (divmod(i, self._size) for i in indices)
        tokens = [self._blocks[block].reducer.tokens_of(at) for block, at in places]
        padded = np.zeros((len(indices), max(map(len, tokens), default=0)), np.int64)
        for row, tokens_of_row in zip(padded, tokens, strict=True):
            row[: len(tokens_of_row)] = tokens_of_row
        return padded

    def _take_rows(self, indices: Sequence[int], batch: OnDevice) -> None:
        """Rows that have come to the host."""
        finite, fits = batch.finite.numpy(), batch.fits.numpy()
        for j, i in enumerate(indices):
            if finite[j] and fits[j]:
                self._failed.pop(i, None)
                continue
            what = (
                "a log-probability under float16's range; store float32 (--dtype float32)"
                if finite[j]
                else f"logits that are not finite; {NOT_FINITE}"
            )
            self._failed[i] = EngineError(what, query=self._start + i)
        options, top = (
            Entries(e.token.int().numpy(), e.logit.numpy(), *e.counts.numpy())
            for e in (batch.options, batch.top)
        )
        logsumexp = batch.logsumexp.numpy()
        for block, rows, some in self._by_block(indices):
            reduced = ReducedRows(
                logsumexp[some],
                *(Entries(*(field[some] for field in e)) for e in (options, top)),
            )
            logprobs = None if batch.logprobs is None else batch.logprobs.numpy()[some]
            block.reducer.put_rows(rows, reduced, logprobs)

    def _by_block(
        self, indices: Sequence[int]
    ) -> Iterator[tuple[Collected, np.ndarray, np.ndarray | slice]]:
        """Each block with rows of a batch: which of its own they are, and which of the batch."""
        blocks, rows = np.divmod(np.asarray(indices), self._size)
        present = np.unique(blocks)
        for block in present:
            some = slice(None) if len(present) == 1 else np.flatnonzero(blocks == block)
            yield self._blocks[block], rows[some], some

    def _states_of(
        self,
        indices: Sequence[int],
        logits: torch.Tensor,
        hidden: torch.Tensor | None,
        to_host: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    ) -> tuple[torch.Tensor | None, dict[int, torch.Tensor]]:
        """States, float32, on the host, and some rows of the logits."""
        if self._blocks[0].states is None or hidden is None:
            return None, {}
        sampled = {
            i: to_host(logits[j].float())
            for j, i in enumerate(indices)
            for states in [self._blocks[i // self._size].states]
            if states is not None and states.samples(i % self._size)
        }
        return to_host(hidden.float()), sampled

    def _take_states(
        self,
        indices: Sequence[int],
        hidden: torch.Tensor | None,
        sampled: dict[int, torch.Tensor],
    ) -> None:
        if self._blocks[0].states is None:
            return
        try:
            if hidden is None:
                raise EngineError(
                    "the engine did not tell what its head multiplied; use --keep full, and report"
                    " this architecture",
                    query=self._start + indices[0],
                )
            for block, rows, some in self._by_block(indices):
                assert block.states is not None
                block.states.put(rows, hidden.numpy()[some])
                block.reducer.put_states(rows, hidden.numpy()[some])
            for i, row in sampled.items():
                states = self._blocks[i // self._size].states
                assert states is not None
                states.put_sample(i % self._size, row.numpy())
        except EngineError as error:
            self._failed.setdefault(indices[0], error)
