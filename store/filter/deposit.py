"""Deposits seen through a filter, which changes scores and rows as they are read."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike

from logitbank.errors import DamagedError, UsageError
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import DEPOSIT, VERIFY
from logitbank.store.filter.filtering import Scores, Sizes, best_logits, filtered
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.top import Top, first_entries, top
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES, SCORES_SCHEMA, CheckpointId
from logitbank.store.tables import query_tables
from logitbank.store.tables.io_source import io_source

_SCHEMA = pl.Schema([(n, pl.Float64() if n == "logit" else t) for n, t in SCORES_SCHEMA.items()])
_COUNTS = ("rank", "ties", "padding_above", "padding_ties")


@dataclass(frozen=True, repr=False)
class FilteredDeposit(Deposit):
    """A deposit through a filter."""

    scores_schema: ClassVar[pl.Schema] = _SCHEMA
    filter: Filter = field(kw_only=True)
    unfiltered: Deposit = field(kw_only=True)

    @property
    def stored(self) -> Deposit:
        return self.unfiltered

    def absolute(self) -> Deposit:
        unfiltered = self.unfiltered.absolute()
        return replace(self, path=unfiltered.path, unfiltered=unfiltered)

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
        at = self._places(self._top, slice(None) if rows is None else np.asarray(rows, np.int64))
        requested = np.arange(self.layout.vocab) if tokens is None else np.asarray(tokens, np.int64)
        columns = np.full(self.layout.vocab, -1)
        columns[requested] = np.arange(len(requested))
        listed = self._top.listed
        listed = listed._replace(
            tokens=listed.tokens[at], logits=listed.logits[at], logsumexp=listed.logsumexp[at]
        )
        column = columns[listed.tokens]
        row, rank = np.nonzero(column >= 0)
        logprobs = best_logits(listed, self.filter)[1] - listed.logsumexp
        values[row, column[row, rank]] = logprobs[rank, row]
        if tokens is not None:
            values = values[:, columns[requested]]  # some twice
        return values.astype(dtype or np.float32, copy=False)

    def hidden(self, rows: ArrayLike | None = None) -> np.ndarray:
        raise UsageError(
            f"the states of a deposit pass no filter; ask the bank itself for those of {self}"
        )

    @property
    def _passes(self) -> bool:
        """Whether the head is of a kind that filters do not change."""
        return self.layout.vocab == NEXT_SENTENCE_CLASSES

    @cached_property
    def _top(self) -> Top:
        return top(self.unfiltered, self.filter.k)

    def compute_scores(self, kinds: Collection[str], columns: Sequence[str]) -> pl.DataFrame:
        """Columns of the scores of these kinds after the filter."""
        is_option = pl.col("kind") == "option"
        scores = self.unfiltered.scores()
        if self._passes:
            scores = scores.filter(pl.col("kind").is_in([*kinds]))
            return scores.select(pl.col(name).cast(_SCHEMA[name]) for name in columns).collect()
        k = self.filter.k
        frame = scores.filter(is_option | first_entries(k)).collect()
        best = top(self.unfiltered, k, frame)
        ranks = not {*_COUNTS, "exact"}.isdisjoint(columns)
        parts = []
        for kind in kinds:
            given = (
                _as_scores(best) if kind == "top" else self._options(frame.filter(is_option), best)
            )
            if kind == "top" or not self.filter.changes_nothing:  # rounding would part what ties
                given = filtered(best.listed, given, self.filter, self._sizes, ranks=ranks)
            parts.append(_frame(given, best, kind, columns))
        return pl.concat(parts)

    def _options(self, options: pl.DataFrame, best: Top) -> Scores:
        return Scores(
            self._places(best, options["query"].to_numpy()),
            options["token"].to_numpy(),
            options["logit"].to_numpy().astype(np.float64),
            *(options[name].to_numpy() for name in (*_COUNTS, "exact")),
        )

    def _places(self, best: Top, rows: np.ndarray | slice) -> np.ndarray:
        """Positions of rows of the query set among the listed ones."""
        place = np.full(self.layout.queries, -1)
        place[best.rows] = np.arange(len(best.rows))
        if (place[rows] < 0).any():
            raise DamagedError(f"{self}: a query does not list its highest tokens; {VERIFY}")
        return np.asarray(place[rows])

    @property
    def _sizes(self) -> Sizes:
        return Sizes(self.layout.vocab, self.spec.vocab_entries)


def filtered_scores(deposits: Sequence[FilteredDeposit], kinds: Collection[str]) -> pl.LazyFrame:
    """Scores of these kinds after the filter: columns of `scores_schema` and `DEPOSIT`.

    They are computed when they are read, one deposit after another: Polars reads several frames at
    once, which took 0.6 GB more for 20 deposits.

    Raises DamagedError: a score file is missing, is not what was committed, or is no table of
    scores.
    """
    for deposit in deposits:
        deposit.unfiltered.scores()

    def read(
        columns: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        used = {*columns, *(predicate.meta.root_names() if predicate is not None else ())}
        for at, deposit in enumerate(deposits):
            frame = deposit.compute_scores(
                kinds, [name for name in _SCHEMA if name in used or name == "query"]
            )
            frame = frame.with_columns(pl.lit(at, pl.UInt32).alias(DEPOSIT))
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame.select(columns)

    return io_source(pl.Schema([*_SCHEMA.items(), (DEPOSIT, pl.UInt32())]), read)


def _as_scores(best: Top) -> Scores:
    """The k highest entries of every query, one after the other."""
    n, k = best.listed.tokens.shape
    none = np.zeros(n * k, np.int32)
    return Scores(
        np.repeat(np.arange(n), k),
        best.listed.tokens.ravel(),
        best.listed.logits.ravel(),
        np.tile(np.arange(1, k + 1, dtype=np.int32), n),
        *(none, none, none),
        np.ones(n * k, np.bool_),
    )


def _frame(scores: Scores, best: Top, kind: str, columns: Sequence[str]) -> pl.DataFrame:
    arrays: dict[str, Callable[[], np.ndarray]] = {
        "query": lambda: best.rows[scores.query],
        "kind": lambda: np.full(len(scores.query), kind),
        "token": lambda: scores.token,
        "logit": lambda: scores.logit,
        "logsumexp": lambda: best.listed.logsumexp[scores.query],
        **{name: partial(getattr, scores, name) for name in (*_COUNTS, "exact")},
    }
    frame = pl.DataFrame({name: arrays[name]() for name in columns})
    return frame.cast({name: _SCHEMA[name] for name in columns})


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
        (model,) = models  # a filter that was not trained fits any
    if model not in models:
        raise UsageError(
            f"the filter was made for {model or 'no one model'}, and {root} has"
            f" {', '.join(sorted(models)) or 'no deposit'}; train one for a model that is there, or"
            " filter a bank of its model"
        )
    name = f"{model} {label_of(by)}" if name is None else name
    if name in models:
        raise UsageError(f"{name!r} is a model of the bank; give the filtered one another name")
    CheckpointId(name)  # refuses what is no name
    by = replace(by, about={**by.about, "model": model})
    if not filtered_deposits(root, by, name):
        raise UsageError(
            f"the filter was made for {model} with another tokenizer than any deposit of it in"
            f" {root}; train one with a bank of this tokenizer"
        )
    return by, name


def filtered_deposits(root: Path, by: Filter, name: str) -> list[Deposit]:
    """The deposits that a filter is for, after the filter, under another model's name."""
    tokenizer = by.about.get("tokenizer")
    return [
        FilteredDeposit(d.path, {**d.attributes, "model": name}, filter=by, unfiltered=d)
        for d in catalog.deposits(root)
        if d.checkpoint.model == by.about["model"]
        and tokenizer in (None, query_tables.tokenizer_of(root, d.query_set))
    ]


def label_of(by: Filter) -> str:
    """Short description of a filter: "+ untrained filter k=8 (truncate)"."""
    trained = "trained" if by.about.get("trained") else "untrained"
    return f"+ {trained} filter k={by.k} ({by.mode})"
