"""Where the scores of a study come from: banks, and tables of others."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.analysis.families.fluctuation.scores import as_scores, published_columns
from logitbank.analysis.frames.apart import check_checkpoints_apart, open_banks
from logitbank.analysis.frames.batches import ROWS, batches
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.same_prompts import check_same_prompts
from logitbank.analysis.frames.table_files import is_table_path, read_table
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


def bank_frames(
    banks: Sequence[Readable], prompts: str, models: Sequence[str] | None, *, rows: int = ROWS
) -> list[pl.LazyFrame]:
    """Scans of a prompt set from the banks that hold any of `models`, in batches."""
    held = [{deposit.checkpoint.model for deposit in bank.deposits()} for bank in banks]
    _held_of(held, models, "bank")  # says which there are
    return batches(banks, prompts, models=models, rows=rows)


def all_scores(
    sources: Sequence[Path | Readable], prompts: str | None, models: Sequence[str] | None
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
    """Scores of pronouns in banks and published tables, and a frame about where they come from.

    Last, what the models of the banks were asked: model, verb, occupation, prior; None without
    banks.

    Raises
    ------
    UsageError
        A table that is not there or is none; its path is named.
    AbsentError
        No source has one of the models, or a bank lacks the prompts.
    """
    files = [path for path in sources if not isinstance(path, Readable) and is_table_path(path)]
    tables = {path: _table(path) for path in files}
    banks = open_banks(source for source in sources if source not in files)
    prompts = chosen_prompts(banks, prompts, FLUCTUATION)
    held = [bank.info()["model"].unique().to_list() for bank in banks]
    rows = None
    if tables:
        # Together, since the lone seed of one file may be one of several.
        rows = pl.concat(list(tables.values()), how="diagonal")
        held.append(rows["model"].drop_nulls().unique().to_list())
    chosen = _held_of(held, models, "bank or table")
    giving = [b for b, own in zip(banks, chosen[: len(banks)], strict=True) if own is None or own]
    check_same_prompts(giving, prompts)
    own_deposits = [
        [d for d in bank.deposits() if models is None or d.checkpoint.model in models]
        for bank in giving
    ]
    check_checkpoints_apart(giving, prompts, own_deposits)
    parts = [
        as_scores(bank.scan(prompts, models=own))
        for bank, own in zip(banks, chosen[: len(banks)], strict=True)
        if own is None or own
    ]
    if rows is not None:
        own = chosen[-1]
        parts.append(as_scores(rows if own is None else rows.filter(pl.col("model").is_in(own))))
    about = [bank.info() for bank in banks]
    about += [
        pl.DataFrame({"table": [path.name], "rows": [len(table)]}) for path, table in tables.items()
    ]
    provenance = pl.concat(about, how="diagonal_relaxed")
    asked = expected_rows(banks, prompts, FLUCTUATION.columns) if banks else None
    if len(parts) == 1:
        return parts[0], provenance, asked
    return pl.concat([p.cast({pl.Categorical: pl.String}) for p in parts]), provenance, asked


def _table(path: Path) -> pl.DataFrame:
    table = read_table(path)
    try:
        return published_columns(table)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _held_of(
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
