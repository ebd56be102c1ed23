"""Where the scores of a study come from: banks, and tables of others."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import polars as pl

from logitbank.analysis.frames.batches import ROWS, batches
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Readable


class Family(NamedTuple):
    """A family of metrics that goes by the columns of its prompts."""

    known: str
    """The prompt set that is taken where a bank has it."""
    columns: tuple[str, ...]
    """What every prompt set of the family has."""


FAIRNESS = Family("winobias", ("sentence_id", "paired"))
FLUCTUATION = Family("professions", ("verb", "occupation", "prior"))
PIECES = 125_000
"""Rows of a batch: sums over the pieces of prompts take several times the memory of dense arrays.
"""


def chosen_prompts(banks: Sequence[Readable], asked: str | None, family: Family) -> str:
    """The prompt set to analyse: as asked, else the family's known one, else the only one.

    Of several, the only one is that with the family's columns.

    Raises
    ------
    UsageError
        No bank has the one asked for, or there are several to choose from.
    """
    there = sorted({name for bank in banks for name in bank.prompt_sets()})
    wanted = asked or family.known
    if wanted in there or not banks:
        return wanted
    fitting = [] if asked else there if len(there) == 1 else _with_columns(banks, family.columns)
    if len(fitting) == 1:
        return fitting[0]
    where = ", ".join(str(bank.path) for bank in banks)
    whose = "it has" if len(banks) == 1 else "they have"
    found = f"{whose} {', '.join(there) or 'none'}"
    if fitting:
        found = f"the columns of this analysis are in {', '.join(fitting)}"
    raise UsageError(f"prompt set {wanted!r} is not in {where}; {found}. Name one with --prompts")


def _with_columns(banks: Sequence[Readable], columns: Collection[str]) -> list[str]:
    return sorted(
        {
            name
            for bank in banks
            for name in bank.prompt_sets()
            if set(bank.prompts(name).collect_schema().names()).issuperset(columns)
        }
    )


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
