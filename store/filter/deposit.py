"""A deposit as it looks through a filter: scores change as they are read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike

from logitbank.errors import DamagedError, UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.score_parts import VERIFY
from logitbank.store.filter.filtering import Scores, Sizes, best_logits, filtered
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.top import Top, first_entries, top
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES, SCORES_SCHEMA
from logitbank.store.tables.lazily import lazily

_SCHEMA = pl.Schema([(n, pl.Float64() if n == "logit" else t) for n, t in SCORES_SCHEMA.items()])


_COUNTS = ("rank", "ties", "padding_above", "padding_ties")


@dataclass(frozen=True, repr=False)
class FilteredDeposit(Deposit):
    """A deposit through a filter."""

    scores_as_stored: ClassVar[bool] = False
    scores_schema: ClassVar[pl.Schema] = _SCHEMA
    by: Filter = field(kw_only=True)
    unfiltered: Deposit = field(kw_only=True)

    @property
    def stored(self) -> Deposit:
        return self.unfiltered

    def absolute(self) -> Deposit:
        unfiltered = self.unfiltered.absolute()
        return replace(self, path=unfiltered.path, unfiltered=unfiltered)

    def scores(self, *, checked: bool = False) -> pl.LazyFrame:
        """Scores after the filter; of the highest entries, the filter's k."""
        self.unfiltered.scores(checked=True)  # says now what is damaged or gone
        return _lazily(partial(self._filtered, checked, ("option", "top")))

    def option_scores(self, *, checked: bool = False) -> pl.LazyFrame:
        """Scores of options after the filter."""
        self.unfiltered.scores(checked=True)
        return _lazily(partial(self._filtered, checked, ("option",)))

    def stored_logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """Log-probabilities through the filter: float32 if no dtype is named."""
        values = self.unfiltered.logprobs(rows, tokens)
        if self._passes:
            return values.astype(dtype or np.float32, copy=False)
        if self.by.mode == "truncate":
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
        logprobs = best_logits(listed, self.by)[1] - listed.logsumexp
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
        """Whether its head is none that a filter is for."""
        return self.layout.vocab == NEXT_SENTENCE_CLASSES

    @cached_property
    def _top(self) -> Top:
        return top(self.unfiltered, self.by.k)

    def _filtered(self, checked: bool, kinds: tuple[str, ...], wanted: list[str]) -> pl.DataFrame:
        is_option = pl.col("kind") == "option"
        scores = self.unfiltered.scores(checked=checked)
        if self._passes:
            kept = scores if "top" in kinds else scores.filter(is_option)
            passed = kept.select(wanted).collect()
            return passed.cast({name: _SCHEMA[name] for name in wanted})
        k = self.by.k
        frame = scores.filter(is_option | first_entries(k)).collect()
        best = top(self.unfiltered, k, frame)
        ranks = not {*_COUNTS, "exact"}.isdisjoint(wanted)
        parts = []
        for kind in kinds:
            given = (
                _as_scores(best) if kind == "top" else self._options(frame.filter(is_option), best)
            )
            if kind == "top" or not self.by.changes_nothing:  # rounding would part what ties
                given = filtered(best.listed, given, self.by, self._sizes, ranks=ranks)
            parts.append(_frame(given, best, kind, wanted))
        return pl.concat(parts)

    def _options(self, options: pl.DataFrame, best: Top) -> Scores:
        return Scores(
            self._places(best, options["query"].to_numpy()),
            options["token"].to_numpy(),
            options["logit"].to_numpy().astype(np.float64),
            *(options[name].to_numpy() for name in (*_COUNTS, "exact")),
        )

    def _places(self, best: Top, rows: np.ndarray | slice) -> np.ndarray:
        """Where rows of the query set are listed."""
        place = np.full(self.layout.queries, -1)
        place[best.rows] = np.arange(len(best.rows))
        if (place[rows] < 0).any():
            raise DamagedError(f"{self}: a query does not list its highest tokens; {VERIFY}")
        return np.asarray(place[rows])

    @property
    def _sizes(self) -> Sizes:
        return Sizes(self.layout.vocab, self.spec.vocab_entries)


def _lazily(read: Callable[[list[str]], pl.DataFrame]) -> pl.LazyFrame:
    """Scores that are read when they are asked for, by the columns that are."""

    def part(
        columns: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        frame = read(columns)
        yield frame if predicate is None else frame.filter(predicate)

    return lazily(_SCHEMA, part)


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


def _frame(scores: Scores, best: Top, kind: str, wanted: list[str]) -> pl.DataFrame:
    columns: dict[str, Callable[[], np.ndarray]] = {
        "query": lambda: best.rows[scores.query],
        "kind": lambda: np.full(len(scores.query), kind),
        "token": lambda: scores.token,
        "logit": lambda: scores.logit,
        "logsumexp": lambda: best.listed.logsumexp[scores.query],
        **{name: partial(getattr, scores, name) for name in (*_COUNTS, "exact")},
    }
    frame = pl.DataFrame({name: columns[name]() for name in wanted})
    return frame.cast({name: _SCHEMA[name] for name in wanted})
