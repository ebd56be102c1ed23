"""Deposits seen through a filter, which changes scores and rows as they are read.

A filter gives log-probabilities. Its ranks are not counted: they are null.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Never

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike

from logitbank.errors import DamagedError, UsageError
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import DEPOSIT
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.top import Listed, first_entries, top
from logitbank.store.format.schema import COUNTS, NEXT_SENTENCE_CLASSES, SCORES_SCHEMA, CheckpointId
from logitbank.store.tables import query_tables
from logitbank.store.tables.io_source import io_source

_SCHEMA = pl.Schema([(n, pl.Float64() if n == "logit" else t) for n, t in SCORES_SCHEMA.items()])
_RANKS = (*COUNTS, "exact")
"""Columns that are null: a filter gives probabilities, and its ranks are not counted."""


@dataclass(frozen=True, repr=False)
class FilteredDeposit(Deposit):
    """A deposit through a filter."""

    filter: Filter = field(kw_only=True)
    unfiltered: Deposit = field(kw_only=True)

    @property
    def stored(self) -> Deposit:
        return self.unfiltered

    def scores(self) -> pl.LazyFrame:
        """Scores after the filter; the highest entries are the filter's k."""
        return filtered_scores([self], ["option", "top"]).drop(DEPOSIT)

    def option_scores(self) -> pl.LazyFrame:
        """Scores of options after the filter."""
        return filtered_scores([self], ["option"]).drop(DEPOSIT)

    def stored_logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """Log-probabilities after the filter: float32 without a dtype."""
        values = self.unfiltered.logprobs(rows, tokens)
        if self._passes:
            return values.astype(dtype or np.float32, copy=False)
        if self.filter.mode == "truncate":
            values[:] = -np.inf
        if len(self._top.rows) < self.rows_committed:
            del self.__dict__["_top"]  # more were committed since
        best = self._top
        index = self._index(best, slice(None) if rows is None else np.asarray(rows, np.int64))
        listed = Listed(*(values_of[index] for values_of in best))
        logprobs = _filtered_logits(listed, self.filter) - listed.logsumexp[:, None]
        if tokens is None:
            np.put_along_axis(values, listed.tokens, logprobs, axis=1)
        for column, token in enumerate([] if tokens is None else np.asarray(tokens)):
            row, rank = np.nonzero(listed.tokens == token)
            values[row, column] = logprobs[row, rank]
        return values.astype(dtype or np.float32, copy=False)

    def hidden(self, rows: ArrayLike | None = None) -> np.ndarray:
        raise UsageError(
            f"Filters do not apply to states. Read those of {self} from the bank itself."
        )

    @property
    def group(self) -> Never:
        raise UsageError(
            f"Filters do not apply to Zarr arrays. Read those of {self} from the bank itself."
        )

    @property
    def _passes(self) -> bool:
        """Whether filters do not change the outputs of this head."""
        return self.layout.vocab == NEXT_SENTENCE_CLASSES

    @cached_property
    def _top(self) -> Listed:
        return top(self.unfiltered, self.filter.k)

    def compute_scores(self, kinds: Collection[str]) -> pl.DataFrame:
        """The scores of these kinds after the filter."""
        scores, is_option = self.unfiltered.scores(), pl.col("kind") == "option"
        if self._passes:
            frame = scores.filter(pl.col("kind").is_in([*kinds])).collect()
        else:
            k, keeps_tail = self.filter.k, self.filter.mode == "keep_tail"
            stored = scores.filter(is_option | first_entries(k)).collect()
            best = top(self.unfiltered, k, stored)
            new = pl.DataFrame(
                {
                    "query": np.repeat(best.rows, k),
                    "token": best.tokens.ravel(),
                    "filtered": _filtered_logits(best, self.filter).ravel(),
                    "logsumexp": np.repeat(best.logsumexp, k),
                }
            )
            others = pl.col("logit").cast(pl.Float64) if keeps_tail else pl.lit(-np.inf)
            options = stored.filter(is_option).join(
                new.drop("logsumexp"), on=["query", "token"], how="left", maintain_order="left"
            )
            parts = {
                "option": options.with_columns(logit=pl.coalesce("filtered", others)),
                "top": new.with_columns(logit="filtered", kind=pl.lit("top")),
            }
            frame = pl.concat([parts[kind] for kind in kinds], how="diagonal_relaxed")
        no_ranks = frame.with_columns(pl.lit(None).alias(name) for name in _RANKS)
        return no_ranks.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())

    def _index(self, best: Listed, rows: np.ndarray | slice) -> np.ndarray:
        """Positions of rows of the query set among the listed ones."""
        place = np.full(self.layout.queries, -1)
        place[best.rows] = np.arange(len(best.rows))
        if (place[rows] < 0).any():
            raise DamagedError(
                f"{self}: a query does not list its highest tokens. Run `logitbank verify`."
            )
        return np.asarray(place[rows])


def filtered_scores(deposits: Sequence[FilteredDeposit], kinds: Collection[str]) -> pl.LazyFrame:
    """Scores of these kinds after the filter: columns of `_SCHEMA` and `DEPOSIT`.

    They are computed when they are read, one deposit after another: Polars reads several frames at
    once, which took 0.6 GB more for 20 deposits.

    Raises DamagedError: a score file is missing, differs from the commit, or is not a table of
    scores.
    """
    for deposit in deposits:
        deposit.unfiltered.scores()

    def read(
        columns: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        for number, deposit in enumerate(deposits):
            frame = deposit.compute_scores(kinds)
            frame = frame.with_columns(pl.lit(number, pl.UInt32).alias(DEPOSIT))
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame.select(columns)

    return io_source(pl.Schema([*_SCHEMA.items(), (DEPOSIT, pl.UInt32())]), read)


def _filtered_logits(listed: Listed, by: Filter) -> np.ndarray:
    """Logits (n, k) of the listed entries after a filter: ln q plus the row's log-sum-exp."""
    before = np.ascontiguousarray(listed.logits.T)
    after = by.log_shares(before)
    if by.mode == "truncate":
        after += listed.logsumexp
    else:  # the mass of the k tokens stays theirs
        highest = before[0]
        after += highest + np.log(np.exp(before - highest).sum(axis=0))
    return after.T


def fitted(
    by: Filter, root: Path, deposits: Sequence[Deposit], name: str | None
) -> tuple[Filter, str]:
    """A filter with its model, and the name of that model after the filter.

    Raises UsageError if the filter is for another model or tokenizer, or `name` is a model of the
    bank.
    """
    model = by.about.get("model")
    models = {deposit.checkpoint.model for deposit in deposits}
    if model is None and len(models) == 1:
        (model,) = models  # an untrained filter fits any model
    if model not in models:
        available = ", ".join(sorted(models)) or "no deposit"
        raise UsageError(
            f"The filter is for {model or 'no particular model'}, and {root} has {available}. Train"
            " a filter for a model of this bank."
        )
    name = f"{model} {_label(by)}" if name is None else name
    if name in models:
        raise UsageError(f"{name!r} is a model of the bank. Use another name for the filtered one.")
    CheckpointId(name)  # refuses an invalid name
    by = replace(by, about={**by.about, "model": model})
    if not filtered_deposits(root, by, name):
        raise UsageError(
            f"The filter is for {model} with another tokenizer than in {root}. Train a filter with"
            " a bank of this tokenizer."
        )
    return by, name


def filtered_deposits(root: Path, by: Filter, name: str) -> list[Deposit]:
    """The deposits that a filter is for, after the filter, under another model's name."""
    tokenizer = by.about.get("tokenizer")
    return [
        FilteredDeposit(d.path, {**d.attributes, "model": name}, filter=by, unfiltered=d)
        for d in catalog.deposits(root)
        if d.checkpoint.model == by.about["model"]
        and tokenizer in (None, query_tables.query_set_tokenizer(root, d.query_set))
    ]


def _label(by: Filter) -> str:
    """Short description of a filter: "+ untrained filter k=8 (truncate)"."""
    trained = "trained" if by.about.get("trained") else "untrained"
    return f"+ {trained} filter k={by.k} ({by.mode})"
