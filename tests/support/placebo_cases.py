"""Banks of prompts with a target and a placebo."""

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
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


ORDERS = ("male|female|not specified", "not specified|male|female", "female|male|not specified")


def winobias_bank(path: Path, sentences: int = 12) -> tuple[Bank, np.ndarray]:
    """Both pronouns in three orders, and the log-odds of male, female and not specified at step 8.

    They are (sentence, gender, order, option).
    """
    options = {"male": 1, "female": 2, "not specified": 3}
    shape = (sentences, 2, len(ORDERS))
    queries = QuerySet(TOKENIZER, tuple(Query((7, i), 1) for i in range(int(np.prod(shape)) * 2)))
    rows = [
        {
            "prompt_id": f"{asked}-{i}-{gender}", "order_seed": seed, "piece": 0, "row": row,
            "text": f"t{row}",
            "answer": "not specified", "option": label, "continuation": f" {label}",
            "token": token, "is_answer": label == "not specified", "query_set": queries.name,
            "sentence_id": f"dev-{i}", "asked": asked, "occupation": asked, "gender": gender,
            "order": ORDERS[seed], "paired": True,
        }
        for row, (asked, i, gender, seed) in enumerate(
            product(("other", "referred"), range(sentences), ("male", "female"), range(3))
        )
        for label, token in options.items()
    ]  # fmt: skip
    bank = Bank.create(path)
    bank.add_query_set(queries)
    table = pl.DataFrame(rows, schema_overrides={**PROMPTS_SCHEMA})
    bank.add_prompts("winobias", table.select(*PROMPTS_SCHEMA, pl.exclude(*PROMPTS_SCHEMA)))
    values = np.random.default_rng(3).normal(size=(len(queries), VOCAB)).astype(np.float32)
    checkpoint = CheckpointId("m", step=8)
    bank.deposit(values, checkpoint=checkpoint, query_set=queries.name, dtype="float32")
    chosen = values[: len(queries) // 2, 1:4].astype(np.float64)
    p = np.exp(chosen) / np.exp(chosen).sum(axis=1, keepdims=True)
    return bank, np.log(p / (1 - p)).reshape(*shape, 3)
