"""Where the scores of a study come from: banks, and tables of others."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import polars as pl

from logitbank.analysis.family import Prompts
from logitbank.analysis.frames.batches import ROWS, batches
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Readable

PIECES = 125_000
"""Rows of a batch: sums over the pieces of prompts take several times the memory of dense arrays.
"""


def chosen_prompts(
    banks: Sequence[Readable], asked: str | None, *, known: str, own: Prompts
) -> str:
    """The prompt set to analyse: as asked, else the `known` one, else the only one.

    Of several, the only one is that which `own` takes for the family's.

    Raises
    ------
    UsageError
        No bank has the one asked for, or there are several to choose from.
    """
    there = sorted({name for bank in banks for name in bank.prompt_sets()})
    wanted = asked or known
    if wanted in there or not banks:
        return wanted
    fitting = [] if asked else there if len(there) == 1 else own_names(own, banks)
    if len(fitting) == 1:
        return fitting[0]
    where = ", ".join(str(bank.path) for bank in banks)
    whose = "it has" if len(banks) == 1 else "they have"
    found = f"{whose} {', '.join(there) or 'none'}"
    if fitting:
        found = f"the columns of this analysis are in {', '.join(fitting)}"
    raise UsageError(f"prompt set {wanted!r} is not in {where}; {found}. Name one with --prompts")


class ColumnsOf(Mapping[str, frozenset[str]]):
    """The columns of the prompt sets of banks, each read when it is asked for."""

    def __init__(self, banks: Sequence[Readable], names: Collection[str] | None = None) -> None:
        self._banks = banks
        self._names = sorted(
            {n for bank in banks for n in bank.prompt_sets()} if names is None else names
        )

    def __getitem__(self, name: str) -> frozenset[str]:
        if name not in self._names:
            raise KeyError(name)
        holding = [bank for bank in self._banks if name in bank.prompt_sets()]
        return frozenset(
            column for bank in holding for column in bank.prompts(name).collect_schema().names()
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def frame_of(
    banks: Sequence[Readable], prompts: str, models: Sequence[str] | None
) -> list[pl.LazyFrame]:
    """The scans of the banks that hold a prompt set, together and in batches.

    Raises
    ------
    AbsentError
        None of the banks has it, or one of the models; says what would make it.
    """
    frame = frame_if_scored(banks, prompts, models)
    if frame is None:
        names = sorted({name for bank in banks for name in bank.prompt_sets()})
        held = f"it has {', '.join(names)}" if names else "it has none"
        alone = f"prompt set {prompts!r} is not in {banks[0].path}; {held}"
        missing = alone if len(banks) == 1 else f"prompt set {prompts!r} is in none of the banks"
        raise AbsentError(
            f"{missing}; make it with `logitbank extract {banks[0].path} --suite … --prompts "
            f"{prompts}`"
        )
    return frame


def frame_if_scored(
    banks: Sequence[Readable], prompts: str, models: Sequence[str] | None, *, rows: int = PIECES
) -> list[pl.LazyFrame] | None:
    """As `frame_of`; None where no bank has the prompt set."""
    holding = [bank for bank in banks if prompts in bank.prompt_sets()]
    if not holding:
        return None
    return bank_frames(holding, prompts, models, rows=rows)


def bank_frames(
    banks: Sequence[Readable], prompts: str, models: Sequence[str] | None, *, rows: int = ROWS
) -> list[pl.LazyFrame]:
    """Scans of a prompt set from the banks that hold any of `models`, in batches."""
    held = [{deposit.checkpoint.model for deposit in bank.deposits()} for bank in banks]
    held_models(held, models, "bank")  # says which there are
    return batches(banks, prompts, models=models, rows=rows)


def held_models(
    held: Sequence[Collection[str]], models: Sequence[str] | None, kind: str
) -> list[list[str] | None]:
    """Of each source, those of `models` that it holds; None for all where none are named."""
    if models is None:
        return [None] * len(held)
    for model in models:
        if not any(model in names for names in held):
            there = ", ".join(sorted({name for names in held for name in names})) or "none"
            raise AbsentError(f"no {kind} has a model {model!r}; there are {there}")
    return [[model for model in models if model in names] for names in held]


def step_given(text: str, option: str) -> int | None:
    """A training step as it was given; None for `release`.

    >>> step_given("512", "--step"), step_given("release", "--step")
    (512, None)

    Raises
    ------
    UsageError
        It is neither.
    """
    if text == "release":
        return None
    if text.isdecimal():
        return int(text)
    raise UsageError(f"{option} {text!r} is neither a training step nor release")


def own_names(own: Prompts, banks: Sequence[Readable]) -> list[str]:
    """The prompt sets of banks that `own` takes for a family's."""
    return [name for names in own(ColumnsOf(banks)) for name in names]
