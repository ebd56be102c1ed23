"""Which deposits of a bank a filter is for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from logitbank.errors import UsageError
from logitbank.store.deposits import places
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.filter.deposit import FilteredDeposit
from logitbank.store.filter.filters import Filter
from logitbank.store.format.schema import CheckpointId
from logitbank.store.tables import query_tables


def fitted(
    by: Filter, root: Path, deposits: Sequence[Deposit], name: str | None
) -> tuple[Filter, str]:
    """A filter with the model that it is for, and the name of that model through the filter.

    Raises
    ------
    UsageError
        The filter was made for another model or tokenizer than any of the deposits, or `name` is
        one of their models.
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
    """The deposits of a bank that a filter is for, through it, under another model's name."""
    tokenizer = by.about.get("tokenizer")
    return [
        FilteredDeposit(d.path, {**d.attributes, "model": name}, by=by, unfiltered=d)
        for d in places.deposits(root)
        if d.checkpoint.model == by.about["model"]
        and tokenizer in (None, query_tables.tokenizer_of(root, d.query_set))
    ]


def label_of(by: Filter) -> str:
    """What a filter is, in a few words: "+ untrained filter k=8 (truncate)"."""
    trained = "trained" if by.about.get("trained") else "untrained"
    return f"+ {trained} filter k={by.k} ({by.mode})"
