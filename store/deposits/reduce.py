"""Reduce vocabulary rows to what a block deposits: log-sum-exp, option logits, exact ranks, top-k.

Row by row in NumPy, before anything is rounded; ranks of float32 logits, log-sum-exp in float64. On
a CPU this is the fast way: three ranks in a row of 50,304 take about 90 µs here and more than 1 ms
as one batched comparison in torch.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import EngineError
from logitbank.store.format.block import finite_rows
from logitbank.store.format.layout import BlockData, Layout
from logitbank.store.format.numbers import as_stored
from logitbank.store.format.schema import SCORES_SCHEMA, OptionTokens, RowArray

NOT_FINITE = (
    "check the checkpoint's weights, or use --compute-dtype float32 where it is a lower one"
)
FLOAT16_MIN, FLOAT16_MAX = (float(x) for x in (np.finfo(np.float16).min, np.finfo(np.float16).max))


class Entries(NamedTuple):
    """What is kept of some vocabulary entries of one row, each field (k,)."""

    token: np.ndarray
    logit: np.ndarray
    rank: np.ndarray
    ties: np.ndarray
    padding_above: np.ndarray
    padding_ties: np.ndarray


class ReducedRow(NamedTuple):
    """One row after reduction."""

    logsumexp: float
    options: Entries
    top: Entries


def option_entries(row: np.ndarray, tokens: np.ndarray, vocab_entries: int) -> Entries:
    """Logit, competition rank and tie counts of `tokens` (k,) in `row` (v,) float32."""
    logits = row[tokens]
    padding = row[vocab_entries:]
    counts = np.empty((4, len(tokens)), np.int32)
    for j, z in enumerate(logits):
        counts[0, j] = np.count_nonzero(row > z) + 1
        counts[1, j] = np.count_nonzero(row == z) - 1
        counts[2, j] = np.count_nonzero(padding > z)
        counts[3, j] = np.count_nonzero(padding == z) - (tokens[j] >= vocab_entries)
    return Entries(tokens, logits, *counts)


def top_entries(row: np.ndarray, k: int, vocab_entries: int) -> Entries:
    """The `k` entries of highest logit, best first; equal logits by ascending token."""
    if k == 1:
        return _best_entry(row, vocab_entries)
    k = min(k, len(row))
    threshold = np.partition(row, len(row) - k)[len(row) - k]
    pool = np.flatnonzero(row >= threshold)  # more than k where the last place is tied
    pool = pool[np.lexsort((pool, -row[pool]))].astype(np.int32)
    tokens, values = pool[:k], row[pool]
    padding = np.concatenate([[0], np.cumsum(pool >= vocab_entries)])
    first = np.searchsorted(-values, -values[:k], side="left")
    last = np.searchsorted(-values, -values[:k], side="right")
    return Entries(
        tokens,
        values[:k],
        (first + 1).astype(np.int32),
        (last - first - 1).astype(np.int32),
        padding[first].astype(np.int32),
        (padding[last] - padding[first] - (tokens >= vocab_entries)).astype(np.int32),
    )


def _best_entry(row: np.ndarray, vocab_entries: int) -> Entries:
    """`top_entries` of one: nothing is above it, so only its equals are counted."""
    token = int(row.argmax())
    z = row[token]
    ties = np.count_nonzero(row == z) - 1
    padding_ties = np.count_nonzero(row[vocab_entries:] == z) - (token >= vocab_entries)
    counts = (np.array([n], np.int32) for n in (1, ties, 0, padding_ties))
    return Entries(np.array([token], np.int32), np.array([z]), *counts)


class Normalised(NamedTuple):
    """The softmax of one row, where it has been computed already."""

    logsumexp: float
    """Log-sum-exp in float64: float32 is off by up to 1.2e-4 where logits are about 3,000."""
    logprobs: np.ndarray | None
    """(v,) in the layout's dtype; None where no log-probabilities are kept."""


def normalise(row: np.ndarray, dtype: str) -> Normalised:
    """Log-sum-exp of `row` (v,) float32, in float64, and the row minus it, rounded once."""
    exact = row.astype(np.float64)
    highest = exact.max()
    logsumexp = float(highest + np.log(np.exp(exact - highest).sum()))
    with np.errstate(over="ignore"):  # the reducer refuses what does not fit
        return Normalised(logsumexp, np.subtract(exact, logsumexp, out=exact).astype(dtype))


class BlockReducer:
    """Collects the rows of one block, in any order; a row put twice keeps the last value.

    Parameters
    ----------
    layout
        Sizes of the deposit.
    block
        Index of the block in the deposit.
    options
        Tokens that prompts name, for every query of the query set.
    vocab_entries
        Entries of the tokenizer; outputs from here on are padding.
    buffer
        (≥ rows of the block, v) in the layout's dtype, to be filled instead of a new array; where
        states are kept, the width of a state in place of v. States of layers have an array of their
        own, new for every block.
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
        self.rows = layout.rows(block)
        self.layout = layout
        self._options = options
        self.vocab_entries = vocab_entries
        self._reduced: list[ReducedRow | None] = [None] * len(self.rows)
        arrays: dict[RowArray, np.ndarray] = {}
        for name, grid in layout.grids.items():
            if name == "layers" or buffer is None:
                arrays[name] = np.empty((len(self.rows), grid.columns), grid.dtype)
            else:
                arrays[name] = buffer[: len(self.rows)]
        self._logprobs, self._hidden = arrays.get("logprobs"), arrays.get("hidden")
        self._layers = arrays.get("layers")
        self._without_state = set() if self._hidden is None else set(range(len(self.rows)))

    def put_hidden(self, i: int, state: np.ndarray, layers: np.ndarray | None = None) -> None:
        """Take the state (width,) that the head multiplied for the block's `i`-th query.

        Beside `put` or `put_reduced`, before or after it. Where no states are kept it does nothing.
        `layers` (layers, width) are the states of the layout's layers, in their order, where it has
        any.

        Raises
        ------
        EngineError
            A state has another width, or a number in it does not fit the layout's dtype, or there
            are states of other layers than the layout's.
        """
        if self._hidden is None:
            return
        width, count = self._hidden.shape[1], len(self.layout.layers)
        if state.shape != (width,):
            raise EngineError(
                f"a state of shape {state.shape}, and the head of this deposit takes ({width},)",
                query=self.rows[i],
            )
        if (() if layers is None else layers.shape) != ((count, width) if count else ()):
            came = "no states" if layers is None else f"states of shape {layers.shape}"
            raise EngineError(
                f"{came} of layers, and this deposit keeps {count} of width {width:,}",
                query=self.rows[i],
            )
        self._put(self._hidden, i, state)
        if self._layers is not None and layers is not None:
            self._put(self._layers, i, layers.reshape(-1))
        self._without_state.discard(i)

    def _put(self, array: np.ndarray, i: int, values: np.ndarray) -> None:
        array[i] = as_stored(values, self.layout.dtype)
        finite = np.isfinite(values).all()
        if not (finite and finite_rows(array[i : i + 1]).all()):
            remedy = "keep float32 (--dtype float32)" if finite else NOT_FINITE
            raise EngineError(
                f"a state with numbers that are not finite in {self.layout.dtype}; {remedy}",
                query=self.rows[i],
            )

    def put(self, i: int, row: np.ndarray, normalised: Normalised | None = None) -> None:
        """Reduce the logits (v,) float32 of the block's `i`-th query.

        `normalised` is given by engines, which compute the softmax of whole batches faster.

        Raises
        ------
        EngineError
            If a logit is not finite, or a log-probability does not fit in float16.
        """
        lowest, highest = float(row.min()), float(row.max())
        if not (np.isfinite(lowest) and np.isfinite(highest)):
            bad = int(np.count_nonzero(~np.isfinite(row)))
            raise EngineError(
                f"{bad} of {len(row)} logits are not finite; {NOT_FINITE}", query=self.rows[i]
            )
        top = top_entries(row, self.layout.keep.k, self.vocab_entries)
        logsumexp, logprobs = normalised or normalise(row, self.layout.row_dtype)
        if self._logprobs is not None:
            if self.layout.dtype == "float16" and lowest - logsumexp < FLOAT16_MIN:
                raise EngineError(
                    f"a log-probability of {lowest - logsumexp:.0f} does not fit in float16; "
                    "store float32 (--dtype float32)",
                    query=self.rows[i],
                )
            self._logprobs[i] = logprobs
        tokens = self._options.of(self.rows[i])
        self._reduced[i] = ReducedRow(
            float(logsumexp), option_entries(row, tokens, self.vocab_entries), top
        )

    def put_reduced(self, i: int, reduced: ReducedRow, logprobs: np.ndarray | None) -> None:
        """Take a row that was reduced on another device."""
        self._reduced[i] = reduced
        if self._logprobs is not None and logprobs is not None:
            self._logprobs[i] = logprobs

    def tokens_of(self, i: int) -> np.ndarray:
        """Option tokens of the block's `i`-th query."""
        return self._options.of(self.rows[i])

    def finish(self) -> BlockData:
        """Everything collected, as the block to write.

        Raises
        ------
        EngineError
            If a row was never put.
        """
        missing = [self.rows[i] for i, reduced in enumerate(self._reduced) if reduced is None]
        if missing:
            raise EngineError(
                f"the engine returned no logits for {len(missing)} of {len(self.rows)} queries, "
                f"the first of them query {missing[0]}"
            )
        if self._without_state:
            raise EngineError(
                f"the engine returned no states for {len(self._without_state)} of {len(self.rows)}"
                f" queries, the first of them query {self.rows[min(self._without_state)]}"
            )
        reduced = [r for r in self._reduced if r is not None]
        frames = [
            _frame([r.options for r in reduced], "option", self.rows, reduced),
            _frame([r.top for r in reduced], "top", self.rows, reduced),
        ]
        return BlockData(self._logprobs, pl.concat(frames), self._hidden, self._layers)


def _frame(
    entries: list[Entries], kind: str, rows: range, reduced: list[ReducedRow]
) -> pl.DataFrame:
    """Rows of `SCORES_SCHEMA` for one kind of entry."""
    counts = [len(e.token) for e in entries]
    columns: dict[str, object] = {
        field: np.concatenate([getattr(e, field) for e in entries]) for field in Entries._fields
    }
    columns |= {
        "query": np.repeat(np.arange(rows.start, rows.stop), counts),
        "logsumexp": np.repeat([r.logsumexp for r in reduced], counts),
    }
    return (
        pl.DataFrame(columns)
        .with_columns(kind=pl.lit(kind), exact=pl.lit(True))
        .select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
    )
