"""`logitbank report`: everything that banks allow, on one page."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.everything import FAILURES, Analysis, analyses, failure_message
from logitbank.analysis.frames.banks import (
    Banks,
    OneBank,
    listed_banks,
    no_model,
    open_banks,
    prompt_sets,
)
from logitbank.analysis.report.origin import bank_name, page_origin, stem
from logitbank.analysis.report.page import Json, Page, library, write_page
from logitbank.analysis.report.prompts import prompt_data
from logitbank.analysis.report.sections import Section, page_opening
from logitbank.analysis.results.files import require_outside
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from logitbank.store.care.lost import missing_tables
from logitbank.store.format.about import about_fields
from logitbank.store.tables.prompt_tables import linked_query_sets
from logitbank.wording import counted, readable_bytes

VALUES = 200_000
"""Scores of single prompts in a page, of all prompt sets together."""
Progress = Callable[[str, int, int], None]
"""The next part, how many parts are done, and of how many."""


def report(
    banks: Banks,
    out: Path | str | None = None,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
    progress: Progress | None = None,
    found: Callable[[Section], None] | None = None,
) -> Path:
    """Write one self-contained HTML page about banks, and return its path.

    It has every analysis that the banks allow, single prompts through training, what is in the
    banks and how it was made. Opening it needs no network.

    Parameters
    ----------
    banks
        One or several banks, analysed together: folders, URLs, or open banks.
    out
        File to write; by default the banks' names with `.html`, in the current folder. An existing
        page is replaced.
    prompts, models
        Only these prompt sets and models.
    bootstrap
        Resamples for the intervals; 0 gives none.
    progress
        Called as `progress(what, done, total)` before each part and at the end.
    found
        Called with each section when the page is written: a title with a study, or with the
        problem that prevented it. The page lists all problems below its title.

    Raises
    ------
    LogitbankError
        No bank, nothing in it, or a prompt set or model that it lacks.
    DamagedError
        A table of prompts cannot be read.
    UsageError
        `out` is a folder, or does not end in .html.
    """
    path = _target(listed_banks(banks), out)
    opened = open_banks(banks, models=models, prompts=prompts)
    names = prompt_sets(opened, prompts)
    info = _info(opened, names, models)
    if models is not None and prompts is None:
        names = [name for name in names if _scored(opened, name, models)]
    problems = _missing_tables(opened)
    plans = analyses(opened, prompts=names, models=models, bootstrap=bootstrap)
    notify = progress or (lambda what, done, total: None)
    total = len(plans) + len(names) + 1
    sections: list[Section] = []
    while plans:  # the last one lets go of what they share
        notify(plans[0].title, len(sections), total)
        sections.append(_section(plans.pop(0)))
    library()  # begins
    views: list[Json] = []
    for done, name in enumerate(names, start=len(sections)):
        notify(f"prompts of {name}", done, total)
        try:
            holding = [bank for bank in opened if _scored([bank], name, models)]
            if holding:
                view = prompt_data(holding, name, models=models, values=VALUES // len(names))
                views += [view] if view["prompts"] else []
        except FAILURES as error:
            problems.append(Section(title=f"Prompts of {name}", problem=failure_message(error)))
    notify("writing the page", total - 1, total)
    if first := page_opening(sections):
        views.sort(key=lambda view: view["name"] not in first.section.prompts)
    problems = [each for each in sections if each.problem] + problems
    titles = [str(about_fields(bank.attributes)["title"] or bank_name(bank)) for bank in opened]
    page = Page(
        title=", ".join(titles),
        lead=_lead(info, names),
        sections=sections,
        prompts=views,
        problems=[f"{each.title}: {each.problem}" for each in problems],
        origin=page_origin(opened, prompts=names),
    )
    write_page(path, page)
    notify("done", total, total)
    if found is not None:
        for each in [*sections, *(each for each in problems if not each.id)]:
            found(each)
    return path


def _target(banks: Sequence[OneBank], out: Path | str | None) -> Path:
    stems = [stem(bank.path if isinstance(bank, Bank) else bank) for bank in banks]
    path = Path(f"{'-'.join(stems)}.html" if out is None else out)
    if path.is_dir() or path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path} is not a name for a page: give a file that ends in .html.")
    require_outside(path)
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent} for {path.name}: make it first.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"{path.parent.resolve()} cannot be written to: name another place with --out."
        )
    return path


def _info(
    banks: Sequence[Bank], names: Sequence[str], models: Sequence[str] | None
) -> pl.DataFrame:
    """The checkpoints of these prompt sets and models in all banks."""
    infos = []
    for bank in banks:
        own = [name for name in names if name in bank.prompt_sets]
        sets = {query_set for name in own for query_set in linked_query_sets(bank.prompts(name))}
        infos.append(bank.info().filter(pl.col("query_set").is_in(list(sets))))
    info = pl.concat(infos)
    where = ", ".join(bank.address for bank in banks)
    if info.is_empty():
        of = f" of {', '.join(names)}" if names else ""
        raise BankError(f"{where} has no checkpoint{of} yet. Run `logitbank extract` first.")
    known = info["model"].unique().sort().to_list()
    for model in models or ():
        if model not in known:
            raise BankError(no_model(model, known, where))
    return info if models is None else info.filter(pl.col("model").is_in(list(models)))


def _missing_tables(banks: Sequence[Bank]) -> list[Section]:
    """Tables that are missing from banks in folders, each with how that is known."""
    return [
        Section(title=table, problem=f"It is missing: {how}.")
        for bank in banks
        if bank.url is None
        for table, how in missing_tables(bank.path, bank.deposits()).items()
    ]


def _scored(banks: Sequence[Bank], prompts: str, models: Sequence[str] | None) -> bool:
    scored = {
        deposit.checkpoint.model
        for bank in banks
        if prompts in bank.prompt_sets
        for deposit in bank.deposits(prompts=prompts)
    }
    return bool(scored if models is None else scored.intersection(models))


def _section(analysis: Analysis) -> Section:
    """Run an analysis; what it refuses becomes the section's problem."""
    study, problem = None, ""
    try:
        study = analysis.run()
    except FAILURES as error:
        problem = failure_message(error)
    return Section(
        title=analysis.title, id=analysis.folder, prompts=analysis.prompts,
        description=analysis.family.description, study=study, problem=problem,
    )  # fmt: skip


def _lead(info: pl.DataFrame, names: Sequence[str]) -> str:
    checkpoints = info.unique(["model", "run", "step"])
    steps = checkpoints["step"].drop_nulls().sort()
    span = f" (steps {steps[0]:,} to {steps[-1]:,})" if len(steps) > 1 else ""
    parts = [
        counted(info["model"].n_unique(), "model"),
        counted(info.select("model", "run").n_unique(), "run"),
        counted(len(checkpoints), "checkpoint") + span,
        counted(len(names), "prompt set"),
    ]
    stored = ", ".join(info["keep"].unique().sort())
    return f"{', '.join(parts)}. Stored: {stored}; {readable_bytes(int(info['bytes'].sum()))}."
