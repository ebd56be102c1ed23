"""Where the scores of a fluctuation study come from: banks, and published tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.analysis.families.fluctuation.scores import (
    as_scores,
    check_prompts,
    published_columns,
)
from logitbank.analysis.family import having
from logitbank.analysis.frames.apart import (
    Banks,
    banks_and_files,
    check_checkpoints_apart,
    open_banks,
)
from logitbank.analysis.frames.batches import batches
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.same_prompts import check_same_prompts
from logitbank.analysis.frames.sources import PIECES, chosen_prompts, held_models
from logitbank.analysis.frames.table_files import is_table_path, read_table
from logitbank.errors import UsageError
from logitbank.store import Bank

COLUMNS = ("verb", "occupation", "prior")
PROMPTS = having(*COLUMNS)
CODED = ("model", "run", "verb", "option")
"""Columns that are wanted as Categorical: a sixth of the time, where each row was cast."""


class Scores(NamedTuple):
    """What was read of banks and published tables."""

    frames: Sequence[pl.LazyFrame]
    """Of one bank, a few checkpoints each; of several sources, whose scores of one checkpoint are
    compared, one of all."""
    expected: pl.DataFrame | None
    """What the models of the banks were asked: model, verb, occupation, prior; None without
    banks."""
    banks: Sequence[Bank]
    prompts: str
    """The prompt set that was read of the banks."""
    files: Sequence[pl.DataFrame]
    """The name of each table, and how many rows it has."""


def all_scores(banks: Banks, prompts: str | None, models: Sequence[str] | None) -> Scores:
    """Scores of pronouns in banks and published tables.

    Raises
    ------
    UsageError
        A table that is not there or is none; its path is named.
    AbsentError
        No source has one of the models, or a bank lacks the prompts.
    """
    named, files = banks_and_files(banks, is_table_path)
    tables = {path: _table(path) for path in files}
    opened = open_banks(named, models=models, prompts=prompts, family=PROMPTS)
    prompts = chosen_prompts(opened, prompts, known="professions", family_prompts=PROMPTS)
    models_of_banks = [bank.info()["model"].unique().to_list() for bank in opened]
    rows = None
    if tables:
        # Together, since the lone seed of one file may be one of several.
        rows = pl.concat(list(tables.values()), how="diagonal")
        models_of_banks.append(rows["model"].drop_nulls().unique().to_list())
    chosen = held_models(models_of_banks, models, "the banks and tables")
    giving = [
        b for b, names in zip(opened, chosen[: len(opened)], strict=True) if names is None or names
    ]
    check_same_prompts(giving, prompts)
    own_deposits = [
        [d for d in bank.deposits() if models is None or d.checkpoint.model in models]
        for bank in giving
    ]
    check_checkpoints_apart(giving, prompts, own_deposits)
    expected = expected_rows(opened, prompts, COLUMNS) if opened else None
    if len(opened) == 1 and rows is None:
        # Of all checkpoints at once, it is let go before a batch is read; it says what is missing.
        check_prompts(opened[0].scan(prompts, models=models).collect_schema().names())
        frames = batches(opened, prompts, models=models, rows=PIECES, coded=CODED)
        return Scores(frames, expected, opened, prompts, [])
    parts = [
        as_scores(bank.scan(prompts, models=names))
        for bank, names in zip(opened, chosen[: len(opened)], strict=True)
        if names is None or names
    ]
    if rows is not None:
        names = chosen[-1]
        parts.append(
            as_scores(rows if names is None else rows.filter(pl.col("model").is_in(names)))
        )
    of_tables = [
        pl.DataFrame({"table": [path.name], "rows": [len(table)]}) for path, table in tables.items()
    ]
    if len(parts) > 1:
        parts = [pl.concat([p.cast({pl.Categorical: pl.String}) for p in parts])]
    return Scores([parts[0].lazy()], expected, opened, prompts, of_tables)


def _table(path: Path) -> pl.DataFrame:
    table = read_table(path)
    try:
        return published_columns(table)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
