"""The items at last checkpoints, which the tables about several models and runs share."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import polars as pl

from logitbank.analysis.family import Family
from logitbank.analysis.frames.batches import NoRowsError
from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.store.steps import Step


def last_checkpoints(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The last checkpoint of each model and run in tables that begin with model, run and step."""
    own = [table.select(CHECKPOINT) for table in tables if table.columns[:3] == [*CHECKPOINT]]
    if not own:
        return pl.DataFrame(schema=dict.fromkeys(CHECKPOINT))
    steps = pl.concat(own, how="vertical_relaxed").unique().sort("step", nulls_last=True)
    return steps.group_by("model", "run", maintain_order=True).last()


def read_items(
    family: Family, scores: Scores, steps: Mapping[str, Collection[Step]]
) -> dict[str, Items]:
    """The items of prompt sets, each at its `steps`; sets without a step or a row have none."""
    assert family.items is not None
    found = dict[str, Items]()
    for name, of_set in steps.items():
        with suppress(NoRowsError):
            if of_set:
                found[name] = family.items(replace(scores.of(name), steps=of_set))
    return found
