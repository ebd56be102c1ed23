"""`logitbank report`: everything that a bank allows, on one page."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.family import families
from logitbank.analysis.frames.shared import sharing
from logitbank.analysis.frames.sources import no_model, no_prompts
from logitbank.analysis.report.origin import Origin, about_bank, holdings, opening, stem
from logitbank.analysis.report.page import Json, write_page
from logitbank.analysis.report.part import Part, part_of
from logitbank.analysis.report.prompts import prompt_data, prompt_table
from logitbank.analysis.report.sections import (
    Section,
    is_damage,
    known_prompts,
    options_of,
    planned,
    section,
    told,
    wanted_by,
)
from logitbank.analysis.report.words import cautions
from logitbank.analysis.results.files import require_outside
from logitbank.analysis.results.words import Summary
from logitbank.errors import BankError, DamagedError, LogitbankError, UsageError
from logitbank.store import Bank, open_bank
from logitbank.store.care.lost import missing_tables
from logitbank.store.format.about import own_fields
from logitbank.store.tables.prompt_tables import query_sets_of
from logitbank.wording import counted, readable_bytes

VALUES = 350_000
"""Scores of single prompts in a page, of all prompt sets together."""
Progress = Callable[[str, int, int], None]
"""What comes next, how many parts are done, and of how many."""
Found = Callable[[str, Summary], None]
"""An analysis, and what it says: its findings, and what they are without."""
Damaged = Callable[[str, str], None]
"""A part of the page, and why it could not be read."""


def report(
    bank: Path | str | Bank,
    out: Path | str | None = None,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
    progress: Progress | None = None,
    found: Found | None = None,
    damaged: Damaged | None = None,
) -> Path:
    """Write one self-contained HTML page about a bank or a view, and return its path.

    It has every analysis that the bank allows, single prompts through training, what is in the bank
    and how it was made. Opening it needs no network.

    Parameters
    ----------
    bank
        Folder, URL, or opened.
    out
        File to write; by default the bank's name with `.html`, in the current folder. A page that
        is there is replaced.
    prompts, models
        Only these prompt sets and models.
    bootstrap
        Resamples for the intervals; 0 gives none.
    progress
        Called as `progress(what, done, total)` before each part and at the end.
    found
        Called as `found(title, summary)` of each analysis when the page is written, with its
        findings and what is left out.
    damaged
        Called as `damaged(title, problem)` when the page is written, of each part that is not on it
        as the bank is damaged there. The page says so too, below its title and where the part would
        stand.

    Raises
    ------
    LogitbankError
        No bank, nothing in it, or a prompt set or model that it lacks.
    DamagedError
        No table of prompts can be read; names the first.
    UsageError
        `out` is a folder, or does not end in .html.
    """
    path = _target(bank, out)
    opened = open_bank(bank, models=models, prompts=prompts)
    names, unreadable = _readable(opened, _prompt_sets(opened, prompts))
    info = _info(opened, names, models)
    if models is not None and prompts is None:  # of what these were not asked, there is nothing
        names = [name for name in names if _scored(opened, name, models)]
    plans = planned(opened, names, models=models, bootstrap=bootstrap)
    tell = progress or (lambda what, done, total: None)
    total = len(plans) + len(names) + 1
    parts: list[Part] = []
    broken = _lost(opened)
    broken += [(f"Prompts of {name}", problem) for name, problem in unreadable.items()]
    wanted = wanted_by(opened, plans, models, bootstrap)
    for done, plan in enumerate(plans):
        tell(plan.title, done, total)
        with sharing(wanted):
            written = section(plan)
        parts.append(_part(written, taken=[part.id for part in parts]))
        if written.damaged:
            broken.append((parts[-1].title, written.problem))
        elif written.problem and plan.family != "options":
            # Prompts of one's own may bear a family's name.
            others = known_prompts([other for other in plans if other is not plan])
            for name in sorted(known_prompts([plan]) - others):
                shares = section(options_of(opened, name, models))
                parts += [] if shares.problem else [_part(shares, taken=[p.id for p in parts])]
    views: list[Json] = []
    unread = [f"{name}: {problem}" for name, problem in unreadable.items()]
    left_out: dict[str, int] = {}
    for done, name in enumerate(names, start=len(plans)):
        tell(f"prompts of {name}", done, total)
        try:
            if _scored(opened, name, models):
                view = prompt_data(opened, name, models=models, values=VALUES // len(names))
                views += [view] if view["prompts"] else []
        except (LogitbankError, pl.exceptions.PolarsError) as error:
            unread.append(f"{name}: {told(error)}")
            left_out[name] = _asked(opened, name)
            if is_damage(error):
                broken.append((f"Prompts of {name}", told(error)))
    tell("writing the page", total - 1, total)
    title = str(own_fields(opened.attributes)["title"] or _stem(bank))
    write_page(
        path,
        title=title,
        lead=_lead(info, names),
        parts=parts,
        prompts=views,
        unread=unread,
        left_out=left_out,
        damaged=[f"{what}: {problem}" for what, problem in broken],
        origin=Origin(
            "The bank, and how it was made",
            about_bank(opened),
            {
                "checkpoints": holdings(info),
                "prompt sets": prompt_table(opened, names),
                "how it was made": opened.provenance(),
            },
            [opening(opened)],
        ),
        cautions=cautions(part.family for part in plans),
    )
    tell("done", total, total)
    if found is not None:
        for part in parts:
            findings = (part.problem,) if part.problem else part.summary.findings
            found(part.title, Summary(findings, left_out=part.summary.left_out))
    if damaged is not None:
        for what, problem in broken:
            damaged(what, problem)
    return path


def _target(bank: Path | str | Bank, out: Path | str | None) -> Path:
    path = Path(f"{_stem(bank)}.html" if out is None else out)
    if path.is_dir() or path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path} is no name for a page; give a file that ends in .html")
    require_outside(path)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {path.name}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"{path.parent.resolve()} cannot be written to; name another place with --out"
        )
    return path


def _stem(bank: Path | str | Bank) -> str:
    return stem(bank.path if isinstance(bank, Bank) else bank)


def _prompt_sets(bank: Bank, requested: Sequence[str] | None) -> list[str]:
    available = bank.prompt_sets
    for name in requested or ():
        if name not in available:
            raise UsageError(no_prompts([bank], repr(name)))
    return (
        available if requested is None else [name for name in available if name in set(requested)]
    )


def _readable(bank: Bank, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The prompt sets whose tables can be read, and why each other one cannot.

    Raises
    ------
    DamagedError
        None can.
    """
    readable: list[str] = []
    problems: dict[str, str] = {}
    for name in names:
        try:
            query_sets_of(bank.prompts(name))
            readable.append(name)
        except (LogitbankError, pl.exceptions.PolarsError) as error:
            if not is_damage(error):
                raise
            problems[name] = told(error)
    if problems and not readable:
        raise DamagedError(next(iter(problems.values())))
    return readable, problems


def _info(bank: Bank, names: Sequence[str], models: Sequence[str] | None) -> pl.DataFrame:
    sets = {query_set for name in names for query_set in query_sets_of(bank.prompts(name))}
    info = bank.info().filter(pl.col("query_set").is_in(list(sets)))
    if info.is_empty():
        of = f" of {', '.join(names)}" if names else ""
        raise BankError(f"{bank.address} has no checkpoint{of} yet; run `logitbank extract` first")
    known = info["model"].unique().sort().to_list()
    for model in models or ():
        if model not in known:
            raise BankError(no_model(model, known, bank.address))
    return info if models is None else info.filter(pl.col("model").is_in(list(models)))


def _lost(bank: Bank) -> list[tuple[str, str]]:
    """Tables that a bank in a folder has lost, each with how one knows."""
    if bank.url is not None:
        return []
    lost = missing_tables(bank.path, (deposit.stored for deposit in bank.deposits()))
    return [(path, f"It is missing: {how}.") for path, how in lost.items()]


def _asked(bank: Bank, prompts: str) -> int:
    """Prompts of a set, option orders counted."""
    of_prompts = bank.prompts(prompts).select("prompt_id", "order_seed").unique()
    return int(of_prompts.select(pl.len()).collect().item())


def _scored(bank: Bank, prompts: str, models: Sequence[str] | None) -> bool:
    scored = {deposit.checkpoint.model for deposit in bank.deposits_of(prompts)}
    return bool(scored if models is None else scored.intersection(models))


def _part(section: Section, *, taken: Sequence[str]) -> Part:
    family, title, prompts, _ = section.plan
    same = sum(name == family or name.startswith(f"{family}-") for name in taken)
    about = families()[family].asks
    id = f"{family}-{same + 1}" if same else family
    title = f"{title}: {prompts[0]}" if same and not title.endswith(f" {prompts[0]}") else title
    if section.study is None:
        return Part(id=id, title=title, prompts=prompts, about=about, problem=section.problem)
    return part_of(section.study, id=id, title=title, prompts=prompts, about=about)


def _lead(info: pl.DataFrame, names: Sequence[str]) -> str:
    checkpoints = info.unique(["model", "run", "step"])
    steps = checkpoints["step"].drop_nulls().sort()
    span = f" (steps {steps[0]:,} to {steps[-1]:,})" if len(steps) > 1 else ""
    size = int(info["bytes"].sum())
    parts = [
        counted(info["model"].n_unique(), "model"),
        counted(info.select("model", "run").n_unique(), "run"),
        counted(len(checkpoints), "checkpoint") + span,
        counted(len(names), "prompt set"),
    ]
    kept = ", ".join(info["keep"].unique().sort())
    return f"{', '.join(parts)}. Kept: {kept}; {readable_bytes(size)}."
