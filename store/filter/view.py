"""A bank as it looks through a filter: nothing is copied, and scores change as they are read.

A view is a folder with `view.json`, which names the bank, and the filter's file. `logitbank.open`
and every analysis take it like a bank; nothing writes into it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, DTypeLike
from polars.io.plugins import register_io_source

from logitbank.errors import BankFormatError, DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.deposits import places, tables
from logitbank.store.deposits.deposit import VERIFY, Deposit
from logitbank.store.filter import view_files
from logitbank.store.filter.filtering import Scores, Sizes, best_logits, filtered
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.top import Top, first_entries, top
from logitbank.store.filter.view_files import ViewDocument
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES, SCORES_SCHEMA, VIEW, CheckpointId
from logitbank.store.read.readable import Readable
from logitbank.store.remote import mirror
from logitbank.store.remote.urls import url_of

_SCHEMA = pl.Schema([(n, pl.Float64() if n == "logit" else t) for n, t in SCORES_SCHEMA.items()])
_COUNTS = ("rank", "ties", "padding_above", "padding_ties")


def open_bank(path: str | Path | Readable) -> Readable:
    """Open a bank or a view of one; what is open already is given back.

    Raises
    ------
    BankError
        As `Bank.open`.
    UsageError
        As `View.of`.
    """
    if isinstance(path, Readable):
        return path
    if url_of(path) is None and (Path(path) / VIEW).is_file():
        return View.open(path)
    return Bank.open(path)


def open_unfiltered(path: str | Path | Readable) -> Bank:
    """Open a bank for what is done without a filter.

    Raises
    ------
    UsageError
        It is a view.
    BankError
        As `Bank.open`.
    """
    bank = open_bank(path)
    if isinstance(bank, View):
        raise UsageError(
            f"{bank.name!r} is seen through a filter already; use the bank itself, {bank.path}"
        )
    assert isinstance(bank, Bank), "there are these two"
    return bank


@dataclass(frozen=True)
class View(Readable):
    """The deposits of one model in a bank, through a filter. Nothing writes into it."""

    path: Path
    attributes: dict[str, Any] = field(compare=False)
    by: Filter = field(kw_only=True)
    name: str = field(kw_only=True)
    """Model name that its checkpoints have."""
    folder: Path | None = field(default=None, kw_only=True, compare=False)
    """Where it was opened; None of one that was made in this process."""

    @classmethod
    def of(cls, bank: Readable, by: Filter, *, name: str | None = None) -> Self:
        """See a bank through a filter.

        Deposits of other models than the filter's are left out. Those of a next-sentence head,
        which has two outputs, are as they were.

        Parameters
        ----------
        name
            What its model is called; by default the model's name and what the filter is.

        Raises
        ------
        UsageError
            The filter was made for another model or tokenizer than any in the bank, `name` is a
            model of the bank, or the bank is a view.
        """
        bank = open_unfiltered(bank)
        model = by.about.get("model")
        there = {d.checkpoint.model for d in bank.deposits()}
        if model is None and len(there) == 1:
            (model,) = there  # a filter that was not trained fits any
        if model not in there:
            raise UsageError(
                f"the filter was made for {model or 'no one model'}, and {bank.path} has"
                f" {', '.join(sorted(there)) or 'no deposit'}; train one for a model that is there,"
                " or view a bank of its model"
            )
        name = f"{model} {label_of(by)}" if name is None else name
        if name in there:
            raise UsageError(f"{name!r} is a model of the bank; give the view another name")
        CheckpointId(name)  # refuses what is no name
        view = cls(bank.path, bank.attributes, by=replace(by, about={**by.about, "model": model}),
                   name=name)  # fmt: skip
        if not view.deposits():
            raise UsageError(
                f"the filter was made for {model} with another tokenizer than any deposit of it in"
                f" {bank.path}; train one with a bank of this tokenizer"
            )
        return view

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a view that `save` wrote.

        Raises
        ------
        BankFormatError
            It is no view, its bank is not where it was, or is another one.
        DamagedError
            `view.json` or the filter is not as it was written.
        UsageError
            Its filter is not there, or does not fit the bank.
        """
        path = Path(path)
        document = view_files.ViewDocument.read(path)
        by = view_files.read_filter(path, document)
        where = view_files.bank_of(path, document)
        try:
            opened = Bank.open(where)
        except BankFormatError as error:
            gone = not (url_of(where) or Path(where).exists())
            why = "is not there" if gone else f"cannot be opened ({error})"
            raise BankFormatError(
                f"{path} is a view of the bank {where}, which {why}; put it back, or write where"
                f" it is now as bank into {path / VIEW}"
            ) from error
        view_files.check_source(path, document, opened.path)
        return replace(cls.of(opened, by, name=document.model), folder=path)

    def save(self, path: str | Path) -> None:
        """Write a folder that `open` reads: the filter, and where the bank is from there.

        What a stopped call left is completed.

        Raises
        ------
        UsageError
            Something else is there.
        """
        path = Path(path)
        copy = mirror.mirror_of(self.path)
        bank = copy.url if copy else os.path.relpath(self.path.resolve(), path.resolve())
        source = view_files.source_of([d.unfiltered for d in self._filtered()], self.path)
        view_files.write(path, self.by, ViewDocument(bank, self.name, source=source))

    def deposits(self, checkpoint: CheckpointId | None = None) -> list[Deposit]:
        """All that the filter is for, under the view's name."""
        return [d for d in self._filtered() if checkpoint in (None, d.checkpoint)]

    def _filtered(self) -> list["FilteredDeposit"]:
        tokenizer = self.by.about.get("tokenizer")
        return [
            FilteredDeposit(d.path, {**d.attributes, "model": self.name}, by=self.by, unfiltered=d)
            for d in places.deposits(self.path)
            if d.checkpoint.model == self.by.about["model"]
            and tokenizer in (None, tables.tokenizer_of(self.path, d.query_set))
        ]

    def _as_stored(self, deposits: Sequence[Deposit]) -> Sequence[Deposit]:
        return [d.unfiltered for d in deposits if isinstance(d, FilteredDeposit)]


@dataclass(frozen=True)
class FilteredDeposit(Deposit):
    """A deposit through a filter."""

    by: Filter = field(kw_only=True)
    unfiltered: Deposit = field(kw_only=True)

    def scores(self, *, checked: bool = False) -> pl.LazyFrame:
        """As a deposit's; of the highest entries, the filter's k."""
        return self._lazily(partial(self._filtered, checked, ("option", "top")))

    def option_scores(self, *, checked: bool = False) -> pl.LazyFrame:
        return self._lazily(partial(self._filtered, checked, ("option",)))

    def stored_logprobs(
        self,
        rows: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """As a deposit's, as they look through the filter: float32 if no dtype is named."""
        values = self.unfiltered.logprobs(rows, tokens)
        if self._passes:
            return values.astype(dtype or np.float32, copy=False)
        if self.by.mode == "truncate":
            values[:] = -np.inf
        if len(self._top.rows) < self.rows_committed:
            del self.__dict__["_top"]  # more were committed since
        at = self._places(self._top, slice(None) if rows is None else np.asarray(rows, np.int64))
        asked = np.arange(self.layout.vocab) if tokens is None else np.asarray(tokens, np.int64)
        columns = np.full(self.layout.vocab, -1)
        columns[asked] = np.arange(len(asked))
        listed = self._top.listed
        listed = listed._replace(
            tokens=listed.tokens[at], logits=listed.logits[at], logsumexp=listed.logsumexp[at]
        )
        column = columns[listed.tokens]
        row, rank = np.nonzero(column >= 0)
        logprobs = best_logits(listed, self.by)[1] - listed.logsumexp
        values[row, column[row, rank]] = logprobs[rank, row]
        if tokens is not None:
            values = values[:, columns[asked]]  # some twice
        return values.astype(dtype or np.float32, copy=False)

    @property
    def _passes(self) -> bool:
        """Whether its head is none that a filter is for."""
        return self.layout.vocab == NEXT_SENTENCE_CLASSES

    @cached_property
    def _top(self) -> Top:
        return top(self.unfiltered, self.by.k)

    def _lazily(self, read: Callable[[list[str] | None], pl.DataFrame]) -> pl.LazyFrame:
        self.unfiltered.scores(checked=True)  # says now what is damaged or gone

        def source(
            with_columns: list[str] | None,
            predicate: pl.Expr | None,
            n_rows: int | None,
            batch_size: int | None,
        ) -> Iterator[pl.DataFrame]:
            frame = read(with_columns)
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame if n_rows is None else frame.head(n_rows)

        return register_io_source(source, schema=_SCHEMA, is_pure=True)

    def _filtered(
        self, checked: bool, kinds: tuple[str, ...], columns: list[str] | None
    ) -> pl.DataFrame:
        own, wanted = pl.col("kind") == "option", list(_SCHEMA) if columns is None else columns
        scores = self.unfiltered.scores(checked=checked)
        if self._passes:
            passed = (scores if "top" in kinds else scores.filter(own)).select(wanted).collect()
            return passed.cast({name: _SCHEMA[name] for name in wanted})
        k = self.by.k
        frame = scores.filter(own | first_entries(k)).collect()
        best = top(self.unfiltered, k, frame)
        ranks = not {*_COUNTS, "exact"}.isdisjoint(wanted)
        parts = []
        for kind in kinds:
            given = _as_scores(best) if kind == "top" else self._options(frame.filter(own), best)
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


def label_of(by: Filter) -> str:
    """What a filter is, in a few words: "+ untrained filter k=8 (truncate)"."""
    trained = "trained" if by.about.get("trained") else "untrained"
    return f"+ {trained} filter k={by.k} ({by.mode})"
