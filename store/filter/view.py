"""A bank as it looks through a filter: nothing is copied, and scores change as they are read."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from logitbank.errors import UsageError
from logitbank.store.bank import Bank
from logitbank.store.deposits import places
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.filter.deposit import FilteredDeposit
from logitbank.store.filter.filters import Filter
from logitbank.store.format.schema import CheckpointId
from logitbank.store.read.readable import Readable
from logitbank.store.tables import query_tables


def open_bank(path: str | Path | Readable) -> Readable:
    """Open a bank; one that is open already is returned.

    Raises
    ------
    BankError
        As `Bank.open`.
    """
    return path if isinstance(path, Readable) else Bank.open(path)


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
    """The deposits of one model in a bank, through a filter. Made by `Bank.filtered`."""

    path: Path
    attributes: dict[str, Any] = field(compare=False)
    by: Filter = field(kw_only=True)
    name: str = field(kw_only=True)
    """Model name that its checkpoints have."""

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

    def deposits(self, checkpoint: CheckpointId | None = None) -> list[Deposit]:
        """All that the filter is for, under the view's name."""
        return [d for d in self._filtered() if checkpoint in (None, d.checkpoint)]

    def _filtered(self) -> list["FilteredDeposit"]:
        tokenizer = self.by.about.get("tokenizer")
        return [
            FilteredDeposit(
                d.path,
                {**d.attributes, "model": self.name},
                by=self.by,
                unfiltered=d,
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
