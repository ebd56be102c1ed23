"""Which analyses a bank allows, and what each finds: the sections of a report."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.families.crows_pairs.study import crows_pairs_study
from logitbank.analysis.families.fairness.study import fairness_study
from logitbank.analysis.families.fluctuation.study import fluctuation_study
from logitbank.analysis.families.lambada.study import lambada_study
from logitbank.analysis.families.options.metric import OptionScores, option_scores, option_summary
from logitbank.analysis.families.stereoset.sources import FAMILY as STEREOSET
from logitbank.analysis.families.stereoset.study import stereoset_study
from logitbank.analysis.families.stereotype.study import stereotype_study
from logitbank.analysis.families.tradeoff.study import tradeoff_study
from logitbank.analysis.families.unqover.study import FAMILY as UNQOVER
from logitbank.analysis.families.unqover.study import unqover_study
from logitbank.analysis.frames.sources import FAIRNESS, FLUCTUATION
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.results.study import Study
from logitbank.errors import BankError, LogitbankError
from logitbank.store import Readable

STEREOTYPES = ("stereotype-accuracy", "winobias", "winobias-em")
GAPS = {"winobias": "fairness", "stereotype-accuracy": "stereotype", "crows-pairs": "crows-pairs"}
"""The gap of a trade-off, by the first of these prompt sets that is there."""


class Planned(NamedTuple):
    """An analysis that the prompt sets of a bank allow."""

    family: str
    title: str
    prompts: tuple[str, ...]
    study: Callable[[], Study[Any]]


@dataclass(frozen=True, slots=True)
class Section:
    """What an analysis found, or why it found nothing."""

    family: str
    title: str
    prompts: tuple[str, ...]
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    result: Any = None
    problem: str = ""


def planned(
    bank: Readable,
    prompt_sets: Collection[str],
    *,
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
) -> list[Planned]:
    """The analyses that prompt sets of a bank allow, in the order of a report.

    Told by the prompt sets' own columns, or by their names where a family goes by names. What no
    family knows has the shares of its options.
    """
    found = list(_of_families(bank, prompt_sets, models=models, bootstrap=bootstrap))
    known = {name for plan in found for name in plan.prompts}
    return [*found, *(options_of(bank, n, models) for n in sorted(set(prompt_sets) - known))]


def options_of(bank: Readable, name: str, models: Sequence[str] | None) -> Planned:
    """The shares of a prompt set's options, whatever it asks."""
    shares = partial(_option_study, bank, name, models)
    return Planned("options", f"Options of {name}", (name,), shares)


def _option_study(bank: Readable, name: str, models: Sequence[str] | None) -> Study[OptionScores]:
    result = option_scores(prompt_scores(bank, name, models=models))
    if not result.shares["prompts"].sum():
        raise BankError(f"no option of prompt set {name!r} is scored, so there is nothing to share")
    return Study(result, option_summary(result))


def _of_families(
    bank: Readable, prompt_sets: Collection[str], *, models: Sequence[str] | None, bootstrap: int
) -> Iterator[Planned]:
    names = sorted(prompt_sets)
    columns = {name: set(bank.prompts(name).collect_schema().names()) for name in names}
    banks, n = [bank], bootstrap
    for name in names:
        if columns[name].issuperset(FAIRNESS.columns):
            fair = partial(fairness_study, banks, prompts=name, models=models, bootstrap=n)
            yield Planned("fairness", "Fairness", (name,), fair)
    for name in names:
        if columns[name].issuperset(FLUCTUATION.columns):
            wander = partial(fluctuation_study, banks, prompts=name, models=models)
            yield Planned("fluctuation", "Fluctuation", (name,), wander)
    if own := _family(names, STEREOSET):
        candidates = partial(stereoset_study, banks, prompts=own, models=models, bootstrap=n)
        yield Planned("stereoset", "StereoSet", own, candidates)
    if own := _family(names, UNQOVER):
        questions = partial(unqover_study, banks, prompts=own, models=models, bootstrap=n)
        yield Planned("unqover", "UnQover", own, questions)
    if own := tuple(name for name in STEREOTYPES if name in names):
        pronouns, winobias, referents = (name if name in own else "" for name in STEREOTYPES)
        stereotype = partial(  # "" is in no bank
            stereotype_study, banks, prompts=pronouns, winobias=winobias, winobias_em=referents,
            models=models,
        )  # fmt: skip
        yield Planned("stereotype", "Stereotype accuracy", own, stereotype)
    if "crows-pairs" in names:
        pairs = partial(crows_pairs_study, banks, models=models)
        yield Planned("crows-pairs", "CrowS-Pairs", ("crows-pairs",), pairs)
    if "lambada" in names:
        words = partial(lambada_study, banks, models=models)
        yield Planned("lambada", "LAMBADA", ("lambada",), words)
        if gaps := [name for name in GAPS if name in names]:
            both = partial(
                tradeoff_study, banks, gap=GAPS[gaps[0]], models=models, bootstrap=bootstrap
            )
            yield Planned("tradeoff", "Performance and fairness", ("lambada", gaps[0]), both)


def section(plan: Planned) -> Section:
    """Run an analysis; what it refuses becomes the section's problem."""
    head = (plan.family, plan.title, plan.prompts)
    try:
        study = plan.study()
    except (LogitbankError, pl.exceptions.PolarsError) as error:
        return Section(*head, problem=told(error))
    return Section(
        *head,
        findings=study.summary.findings,
        notes=study.summary.notes,
        result=study.result,
    )


def told(error: Exception) -> str:
    """What went wrong, in a sentence; Polars's own errors are about tables that are damaged."""
    if isinstance(error, LogitbankError):
        return str(error)
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"A table could not be read ({first}); run `logitbank verify` on the bank."


def _family(names: Sequence[str], beginning: str) -> tuple[str, ...]:
    return tuple(name for name in names if name.startswith(beginning))
