"""Where the scores of a study come from: banks, and tables of others."""

from collections.abc import Collection, Sequence

import polars as pl

from logitbank.analysis.family import ChoosePrompts
from logitbank.analysis.frames.apart import Banks, open_banks, own_names
from logitbank.analysis.frames.batches import ROWS, batches
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Bank

PIECES = 40_000
"""Rows of a batch: sums over the pieces of prompts take several times the memory of dense arrays.
"""


def chosen_prompts(
    banks: Sequence[Bank], requested: str | None, *, known: str, family_prompts: ChoosePrompts
) -> str:
    """The prompt set to analyse: as asked, else the `known` one, else the only one.

    Of several, the only one is that which `family_prompts` takes for the family's.

    Raises
    ------
    UsageError
        No bank has the one asked for, or there are several to choose from.
    """
    available = sorted({name for bank in banks for name in bank.prompt_sets})
    wanted = requested or known
    if wanted in available or not banks:
        return wanted
    fitting = (
        [] if requested else available if len(available) == 1 else own_names(family_prompts, banks)
    )
    if len(fitting) == 1:
        return fitting[0]
    several = f"the columns of this analysis are in {', '.join(fitting)}" if fitting else ""
    raise UsageError(f"{no_prompts(banks, repr(wanted), instead=several)}. Name one with --prompts")


def no_prompts(banks: Sequence[Bank], what: str, *, instead: str = "", make: str = "") -> str:
    """That banks lack a prompt set, what there is `instead`, and what would `make` it.

    By default there are the prompt sets that they have.
    """
    names = sorted({name for bank in banks for name in bank.prompt_sets})
    whose = "it has" if len(banks) == 1 else "they have"
    where = ", ".join(bank.address for bank in banks)
    available = instead or f"{whose} {', '.join(names) or 'none'}"
    text = f"prompt set {what} is not in {where}; {available}"
    if not make:
        return text
    return f"{text}. Make it with `logitbank extract {banks[0].address} --suite … --prompts {make}`"


def no_model(model: str, models: Collection[str], where: str) -> str:
    """That a model is not there, and which are."""
    return f"model {model!r} is not in {where}; there are {', '.join(sorted(models)) or 'none'}"


def frame_of(
    banks: Sequence[Bank],
    prompts: str,
    models: Sequence[str] | None,
    *,
    rows: int = PIECES,
    coded: Collection[str] = (),
) -> Sequence[pl.LazyFrame]:
    """The scans of the banks that hold a prompt set, together and in batches.

    Raises
    ------
    AbsentError
        None of the banks has it, or one of the models; says what would make it.
    """
    frame = frame_if_scored(banks, prompts, models, rows=rows, coded=coded)
    if frame is None:
        raise AbsentError(no_prompts(banks, repr(prompts), make=prompts))
    return frame


def frame_if_scored(
    banks: Sequence[Bank],
    prompts: str,
    models: Sequence[str] | None,
    *,
    rows: int = PIECES,
    coded: Collection[str] = (),
) -> Sequence[pl.LazyFrame] | None:
    """As `frame_of`; None where no bank has the prompt set."""
    holding = [bank for bank in banks if prompts in bank.prompt_sets]
    if not holding:
        return None
    return bank_frames(holding, prompts, models, rows=rows, coded=coded)


def bank_frames(
    banks: Sequence[Bank],
    prompts: str,
    models: Sequence[str] | None,
    *,
    rows: int = ROWS,
    coded: Collection[str] = (),
) -> Sequence[pl.LazyFrame]:
    """Scans of a prompt set from the banks that hold any of `models`, in batches.

    `coded` are columns of text to give as Categorical.
    """
    models_of_banks = [{deposit.checkpoint.model for deposit in bank.deposits()} for bank in banks]
    held_models(models_of_banks, models, "the banks")  # says which there are
    return batches(banks, prompts, models=models, rows=rows, coded=coded)


def held_models(
    models_of_banks: Sequence[Collection[str]], models: Sequence[str] | None, kind: str
) -> list[list[str] | None]:
    """Of each source, those of `models` that it holds; None for all where none are named."""
    if models is None:
        return [None] * len(models_of_banks)
    for model in models:
        if not any(model in names for names in models_of_banks):
            raise AbsentError(
                no_model(model, {name for names in models_of_banks for name in names}, kind)
            )
    return [[model for model in models if model in names] for names in models_of_banks]


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


def open_own(
    banks: Banks,
    family_prompts: ChoosePrompts,
    prompts: Sequence[str] | None,
    models: Sequence[str] | None,
    *,
    family: str,
    make: str,
) -> tuple[list[Bank], list[str]]:
    """Open banks with the scores of these prompt sets, by default those of a family; their names.

    Raises
    ------
    AbsentError
        No bank has one of the prompt sets, or any of the family; says what would `make` it.
    LogitbankError
        As `open_banks`.
    """
    opened = open_banks(banks, models=models, prompts=prompts, family=family_prompts)
    if not opened:
        return [], []
    names = own_names(family_prompts, opened) if prompts is None else list(prompts)
    available = {name for bank in opened for name in bank.prompt_sets}
    absent = [name for name in names if name not in available]
    if absent or not names:
        what = repr(absent[0]) if absent else f"of {family}"
        raise AbsentError(no_prompts(opened, what, make=make))
    return opened, names
