"""Collects the reduced rows of one block."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import EngineError
from logitbank.store.deposits.entries import (
    Entries,
    Normalised,
    normalise,
    option_entries,
    top_entries,
)
from logitbank.store.format.block import finite_rows
from logitbank.store.format.layout import BlockData, Layout
from logitbank.store.format.numbers import as_stored
from logitbank.store.format.schema import SCORES_SCHEMA, OptionTokens

NOT_FINITE = "Check the checkpoint's weights, or use --compute-dtype float32."
FLOAT16_MIN, FLOAT16_MAX = (float(x) for x in (np.finfo(np.float16).min, np.finfo(np.float16).max))


class ReducedRows(NamedTuple):
    """Rows that were reduced together on another device."""

    logsumexp: np.ndarray
    """(n,) float64."""
    options: Entries
    """Fields (n, w): row i has as many entries as tokens, then padding."""
    top: Entries
    """Fields (n, k)."""


class BlockReducer:
    """Collects the rows of one block, in any order; a row put twice keeps the last value.

    Parameters
    ----------
    layout
        Sizes of the deposit.
    block
        Index of the block in the deposit.
    options
        Option tokens of every query of the query set.
    vocab_entries
        Entries of the tokenizer; outputs from here on are padding.
    buffer
        (≥ rows of the block, v) in the layout's dtype, filled instead of a new array; (…, width)
        for states.
    """

    def __init__(
        self,
        layout: Layout,
        block: int,
        *,
        options: OptionTokens,
        vocab_entries: int,
        buffer: np.ndarray | None = None,
    ) -> None:
        self.block = block
        self.rows = layout.rows(block)
        self.layout = layout
        self.vocab_entries = vocab_entries
        count = len(self.rows)
        self._missing = np.ones(count, bool)
        self._logsumexp = np.empty(count)
        offsets = options.offsets[self.rows.start : self.rows.stop + 1]
        self._tokens = options.tokens[offsets[0] : offsets[-1]]
        self._starts = offsets - offsets[0]
        self._options = _entries((len(self._tokens),))
        self._top = _entries((count, min(layout.keep.k, layout.vocab)))
        if (grid := layout.grid) is not None and buffer is None:
            buffer = np.empty((count, grid.columns), grid.dtype)
        self._kept = None if grid is None or buffer is None else buffer[:count]
        self._hidden = self._kept if layout.keep.array == "hidden" else None
        self._logprobs = self._kept if layout.keep.array == "logprobs" else None
        self._stateless = np.full(count, self._hidden is not None)

    def put_states(self, rows: Sequence[int] | np.ndarray, states: np.ndarray) -> None:
        """Store the states (n, width) of some queries of the block, before or after their logits.

        It does nothing if no states are kept. Raises EngineError if a state has another width, or
        does not fit the layout's dtype.
        """
        if self._hidden is None:
            return
        rows = np.asarray(rows)
        width = self._hidden.shape[1]
        if states.shape[1:] != (width,):
            raise EngineError(
                f"A hidden state has shape {states.shape[1:]}, but the LM head needs ({width},).",
                query=self.rows[int(rows[0])],
            )
        stored = as_stored(states, self.layout.dtype)
        finite = np.isfinite(states).all(axis=1)
        if not (fits := finite & finite_rows(stored)).all():
            first = int(np.argmin(fits))
            advice = "Keep float32 (--dtype float32)." if finite[first] else NOT_FINITE
            raise EngineError(
                f"A hidden state is not finite in {self.layout.dtype}. {advice}",
                query=self.rows[int(rows[first])],
            )
        self._hidden[rows] = stored
        self._stateless[rows] = False

    def put(self, i: int, row: np.ndarray, normalised: Normalised | None = None) -> None:
        """Reduce the logits (v,) float32 of the block's `i`-th query.

        Engines that compute the softmax of whole batches pass `normalised`. Raises EngineError if a
        logit is not finite, or a log-probability does not fit in float16.
        """
        lowest = float(row.min())
        # The log-sum-exp is finite if all logits are; a search costs 4 µs.
        highest = float(row.max()) if normalised is None else normalised.logsumexp
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            bad = int(np.count_nonzero(~np.isfinite(row)))
            raise EngineError(
                f"{bad} of {len(row)} logits are not finite. {NOT_FINITE}", query=self.rows[i]
            )
        logsumexp, logprobs = normalised or normalise(row, self.layout.row_dtype)
        if self._logprobs is not None:
            if self.layout.dtype == "float16" and lowest - logsumexp < FLOAT16_MIN:
                raise EngineError(
                    f"A log-probability of {lowest - logsumexp:.0f} does not fit in float16."
                    " Fix: --dtype float32",
                    query=self.rows[i],
                )
            self._logprobs[i] = logprobs
        self._logsumexp[i] = logsumexp
        span = slice(self._starts[i], self._starts[i + 1])
        options = option_entries(row, self._tokens[span], self.vocab_entries)
        top = top_entries(row, self.layout.keep.k, self.vocab_entries)
        for index, arrays, entries in ((span, self._options, options), (i, self._top, top)):
            for array, values in zip(arrays, entries, strict=True):
                array[index] = values
        self._missing[i] = False

    def put_rows(
        self, rows: Sequence[int] | np.ndarray, reduced: ReducedRows, logprobs: np.ndarray | None
    ) -> None:
        """Store rows that were reduced on another device.

        `logprobs` (n, v) are in the layout's dtype, None if the deposit does not keep them.
        """
        at = np.asarray(rows)
        self._logsumexp[at] = reduced.logsumexp
        if self._logprobs is not None and logprobs is not None:
            self._logprobs[at] = logprobs
        for array, values in zip(self._top, reduced.top, strict=True):
            array[at] = values
        column = np.arange(reduced.options.token.shape[1])
        listed = column < (self._starts[at + 1] - self._starts[at])[:, None]
        places = (self._starts[at][:, None] + column)[listed]
        for array, values in zip(self._options, reduced.options, strict=True):
            array[places] = values[listed]
        self._missing[at] = False

    def option_tokens(self, i: int) -> np.ndarray:
        """Option tokens of the block's `i`-th query."""
        return self._tokens[self._starts[i] : self._starts[i + 1]]

    def finish(self) -> BlockData:
        """The block to write, or EngineError if a row is missing."""
        for what, without in (("logits", self._missing), ("states", self._stateless)):
            if without.any():
                raise EngineError(
                    f"The engine returned no {what} for {without.sum()} of {len(self.rows)}"
                    f" queries, the first query {self.rows[int(without.argmax())]}."
                )
        queries = np.arange(self.rows.start, self.rows.stop)
        of_row = (np.diff(self._starts), np.full(len(queries), self._top.token.shape[1]))
        frames = [
            _frame(kind, entries, np.repeat(queries, n), np.repeat(self._logsumexp, n))
            for kind, entries, n in zip(
                ("option", "top"), (self._options, self._top), of_row, strict=True
            )
        ]
        return BlockData(self._kept, pl.concat(frames))


def _entries(shape: tuple[int, ...]) -> Entries:
    whole = (np.empty(shape, np.int32) for _ in range(5))
    return Entries(next(whole), np.empty(shape, np.float32), *whole)


def _frame(kind: str, entries: Entries, queries: np.ndarray, logsumexp: np.ndarray) -> pl.DataFrame:
    """Rows of `SCORES_SCHEMA` for one kind of entry."""
    columns = {field: values.reshape(-1) for field, values in entries._asdict().items()}
    return (
        pl.DataFrame(columns | {"query": queries, "logsumexp": logsumexp})
        .with_columns(kind=pl.lit(kind), exact=pl.lit(True))
        .select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
    )
