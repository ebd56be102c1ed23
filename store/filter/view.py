"""A bank as it looks through a filter: nothing is copied, and scores change as they are read.

A view is a folder with `view.json`, which names the bank, and the filter's file. `logitbank.open`
and every analysis take it like a bank. Scores that were computed once are kept in the folder.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from logitbank.errors import BankFormatError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.deposits import places
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.filter import view_files
from logitbank.store.filter.deposit import FilteredDeposit
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.kept import KeptScores
from logitbank.store.filter.view_files import ViewDocument
from logitbank.store.format.schema import VIEW, CheckpointId
from logitbank.store.read.readable import Readable
from logitbank.store.remote import mirror
from logitbank.store.remote.urls import url_of
from logitbank.store.tables import query_tables


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


@dataclass(frozen=True, repr=False)
class View(Readable):
    """The deposits of one model in a bank, through a filter. It keeps what it computed of them."""

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
        models = {d.checkpoint.model for d in bank.deposits()}
        if model is None and len(models) == 1:
            (model,) = models  # a filter that was not trained fits any
        if model not in models:
            raise UsageError(
                f"the filter was made for {model or 'no one model'}, and {bank.path} has"
                f" {', '.join(sorted(models)) or 'no deposit'}; train one for a model that is"
                " there, or view a bank of its model"
            )
        name = f"{model} {label_of(by)}" if name is None else name
        if name in models:
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
        return replace(cls.of(opened, by, name=document.model), folder=path.absolute())

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

    @cached_property
    def _kept_scores(self) -> KeptScores | None:
        return None if self.folder is None else KeptScores.of(self.folder, self.by)

    def _filtered(self) -> list["FilteredDeposit"]:
        tokenizer = self.by.about.get("tokenizer")
        return [
            FilteredDeposit(
                d.path,
                {**d.attributes, "model": self.name},
                by=self.by,
                unfiltered=d,
                kept_scores=self._kept_scores,
            )
            for d in places.deposits(self.path)
            if d.checkpoint.model == self.by.about["model"]
            and tokenizer in (None, query_tables.tokenizer_of(self.path, d.query_set))
        ]

    def _as_stored(self, deposits: Sequence[Deposit]) -> Sequence[Deposit]:
        return [d.unfiltered for d in deposits if isinstance(d, FilteredDeposit)]


def label_of(by: Filter) -> str:
    """What a filter is, in a few words: "+ untrained filter k=8 (truncate)"."""
    trained = "trained" if by.about.get("trained") else "untrained"
    return f"+ {trained} filter k={by.k} ({by.mode})"
