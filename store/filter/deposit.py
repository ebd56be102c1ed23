"""Deposits seen through a filter, which changes scores and rows as they are read."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Never

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike

from logitbank.errors import DamagedError, UsageError
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import DEPOSIT
from logitbank.store.filter.filtering import Listed, Scores, Sizes, best_logits, filtered
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.top import first_entries, top
from logitbank.store.format.schema import COUNTS, NEXT_SENTENCE_CLASSES, SCORES_SCHEMA, CheckpointId
from logitbank.store.tables import query_tables
from logitbank.store.tables.io_source import io_source

_SCHEMA = pl.Schema([(n, pl.Float64() if n == "logit" else t) for n, t in SCORES_SCHEMA.items()])


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
        index = self._index(self._top, slice(None) if rows is None else np.asarray(rows, np.int64))
        best = self._top
        listed = Listed(
            best.rows[index],
            best.tokens[index],
            best.logits[index],
            best.logsumexp[index],
            best.ranked,
        )
        logprobs = (best_logits(listed, self.filter)[1] - listed.logsumexp).T
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
        ranks = not {*COUNTS, "exact"}.isdisjoint(columns)
        parts = []
        for kind in kinds:
            part = (
                _top_scores(best) if kind == "top" else self._options(frame.filter(is_option), best)
            )
            if kind == "top" or not self.filter.is_identity:  # rounding would separate ties
                part = filtered(best, part, self.filter, self._sizes, ranks=ranks)
            parts.append(_frame(part, best, kind, columns))
        return pl.concat(parts)

    def _options(self, options: pl.DataFrame, best: Listed) -> Scores:
        return Scores(
            self._index(best, options["query"].to_numpy()),
            options["token"].to_numpy(),
            options["logit"].to_numpy().astype(np.float64),
            *(options[name].to_numpy() for name in (*COUNTS, "exact")),
        )

    def _index(self, best: Listed, rows: np.ndarray | slice) -> np.ndarray:
        """Positions of rows of the query set among the listed ones."""
        place = np.full(self.layout.queries, -1)
        place[best.rows] = np.arange(len(best.rows))
        if (place[rows] < 0).any():
            raise DamagedError(
                f"{self}: a query does not list its highest tokens. Run `logitbank verify`."
            )
        return np.asarray(place[rows])

    @property
    def _sizes(self) -> Sizes:
        return Sizes(self.layout.vocab, self.spec.vocab_entries)


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
        used = {*columns, *(predicate.meta.root_names() if predicate is not None else ())}
        for number, deposit in enumerate(deposits):
            frame = deposit.compute_scores(
                kinds, [name for name in _SCHEMA if name in used or name == "query"]
            )
            frame = frame.with_columns(pl.lit(number, pl.UInt32).alias(DEPOSIT))
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame.select(columns)

    return io_source(pl.Schema([*_SCHEMA.items(), (DEPOSIT, pl.UInt32())]), read)


def _top_scores(best: Listed) -> Scores:
    """The k highest entries of every query, one after the other."""
    n, k = best.tokens.shape
    none = np.zeros(n * k, np.int32)
    return Scores(
        np.repeat(np.arange(n), k),
        best.tokens.ravel(),
        best.logits.ravel(),
        np.tile(np.arange(1, k + 1, dtype=np.int32), n),
        *(none, none, none),
        np.ones(n * k, np.bool_),
    )


def _frame(scores: Scores, best: Listed, kind: str, columns: Sequence[str]) -> pl.DataFrame:
    arrays: dict[str, Callable[[], np.ndarray]] = {
        "query": lambda: best.rows[scores.query],
        "kind": lambda: np.full(len(scores.query), kind),
        "token": lambda: scores.token,
        "logit": lambda: scores.logit,
        "logsumexp": lambda: best.logsumexp[scores.query],
        **{name: partial(getattr, scores, name) for name in (*COUNTS, "exact")},
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
