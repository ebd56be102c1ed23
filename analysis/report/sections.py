"""Which analyses a bank allows, and what each finds: the sections of a report."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.family import families
from logitbank.analysis.frames.apart import ColumnsOf
from logitbank.analysis.frames.shared import Wanted, sharing
from logitbank.analysis.results.study import Study
from logitbank.errors import DamagedError, LogitbankError
from logitbank.store import Bank


class Planned(NamedTuple):
    """An analysis that the prompt sets of a bank allow."""

    family: str
    title: str
    prompts: tuple[str, ...]
    study: Callable[[], Study[Any]]


@dataclass(frozen=True, slots=True)
class Section:
    """What an analysis found, or why it found nothing."""

    plan: Planned
    study: Study[Any] | None
    problem: str = ""
    damaged: bool = False
    """Whether the problem is that something of the bank is not what was committed."""


def planned(
    bank: Bank,
    prompt_sets: Collection[str],
    *,
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
) -> list[Planned]:
    """The analyses that prompt sets of a bank allow, in the order of a report.

    A family says which prompt sets are its own; what no family knows has the shares of its options.
    """
    columns = ColumnsOf([bank], prompt_sets)
    plans = [
        Planned(
            family.name,
            family.title,
            names,
            partial(family.study, [bank], names, models, bootstrap),
        )
        for family in families().values()
        for names in family.prompts(columns)
    ]
    unknown = sorted(set(prompt_sets) - known_prompts(plans))
    return [*plans, *(options_of(bank, name, models) for name in unknown)]


def wanted_by(
    bank: Bank,
    plans: Collection[Planned],
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
) -> list[Wanted]:
    """What analyses want of what others read too; each says in its own section what is wrong.

    All that is wanted of a prompt set is of the same frames, which the first has made.
    """
    wanted: list[Wanted] = []
    for plan in plans:
        with suppress(LogitbankError, pl.exceptions.PolarsError), sharing(wanted):
            wanted += families()[plan.family].wants([bank], plan.prompts, models, bootstrap)
    return wanted


def known_prompts(plans: Collection[Planned]) -> set[str]:
    """The prompt sets that are some family's own."""
    return {name for plan in plans for name in plan.prompts}


def options_of(bank: Bank, name: str, models: Sequence[str] | None) -> Planned:
    """The shares of a prompt set's options, whatever it asks."""
    family = families()["options"]
    shares = partial(family.study, [bank], (name,), models, 0)
    return Planned(family.name, f"{family.title} of {name}", (name,), shares)


def section(plan: Planned) -> Section:
    """Run an analysis; what it refuses becomes the section's problem."""
    try:
        return Section(plan, plan.study())
    except (LogitbankError, pl.exceptions.PolarsError) as error:
        return Section(plan, None, told(error), damaged=is_damage(error))


def is_damage(error: Exception) -> bool:
    """Whether an error is of a damaged bank, and no refusal of what was asked of a sound one."""
    return isinstance(error, (DamagedError, pl.exceptions.PolarsError))


def told(error: Exception) -> str:
    """What went wrong, in a sentence; Polars's own errors are about tables that are damaged."""
    if isinstance(error, LogitbankError):
        return str(error)
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"A table could not be read ({first}); run `logitbank verify` on the bank."
