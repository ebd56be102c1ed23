"""Banks of prompts with a target and a placebo."""

from pathlib import Path

import numpy as np
import polars as pl

from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support.small_banks import QUERY_SET, TOKENIZER, VOCAB, logits, new_bank, prompt_table

EDITS = ("original", "target", "placebo")


def pair_table(queries: QuerySet, edits: tuple[str, ...] = EDITS) -> pl.DataFrame:
    """Three prompts in a row are a pair; those that are left over are in none."""
    table = prompt_table(queries).filter(pl.col("row") < len(queries) // 3 * 3)
    return table.with_columns(
        pair=pl.format("pair{}", pl.col("row") // 3),
        edit=(pl.col("row") % 3).replace_strict(dict(enumerate(edits)), return_dtype=pl.String),
    )


def with_pairs(path: Path, edits: tuple[str, ...] = EDITS) -> Bank:
    """Three pairs at two steps."""
    bank = new_bank(path)
    bank.add_prompts("edits", pair_table(QUERY_SET, edits))
    for step in (0, 8):
        checkpoint = CheckpointId("m", step=step)
        bank.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name, dtype="float32")
    return bank


def learning_bank(path: Path) -> None:
    """60 pairs at seven steps; the target moves the log-odds further and further."""
    queries = QuerySet(TOKENIZER, tuple(Query((i, i + 1, 2), 2) for i in range(180)))
    bank = Bank.create(path)
    bank.add_query_set(queries)
    bank.add_prompts("edits", pair_table(queries))
    rng = np.random.default_rng(0)
    original = np.repeat(rng.normal(size=(60, VOCAB)), 3, axis=0)
    for at, step in enumerate((0, 10, 20, 40, 80, 160, 320)):
        values = original * (1 + at / 3) + rng.normal(size=original.shape) * 0.3
        values[1::3] += rng.normal(size=(60, VOCAB)) * at * 0.3
        checkpoint = CheckpointId("m", step=step)
        bank.deposit(values.astype(np.float32), checkpoint=checkpoint, query_set=queries.name)
