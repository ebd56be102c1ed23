"""Banks with requests of lm-evaluation-harness, from random logits."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.engine.prompts.registry import prompt_sets
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.store import Bank, CheckpointId, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.checkpoints import LONGEST, VOCAB, write_tokenizer
from tests.support.lm_eval_tasks import write_tasks


def harness_bank(
    folder: Path, names: Sequence[str], *, steps: Sequence[int], runs: Sequence[str] = ("main",)
) -> Bank:
    """`folder/b.zarr`, with prompt sets of tasks in `folder/tasks`: names and their options."""
    folder.mkdir(exist_ok=True)
    tasks = write_tasks(folder / "tasks")
    write_tokenizer(folder / "tokenizer")
    tokenizer = Tokenizer.load(folder / "tokenizer")
    bank = Bank.create(folder / "b.zarr")
    specs = [f"lm-eval:{name}{',' if ':' in name else ':'}include={tasks}" for name in names]
    for own in prompt_sets(specs, data=None):
        tokenized = tokenize(own, tokenizer, LONGEST)
        queries = QuerySet(tokenizer.digest, tokenized.queries)
        table = tokenized.table.with_columns(query_set=pl.lit(queries.name), row="query")
        bank.add_query_set(queries)
        table = table.select(*PROMPTS_SCHEMA, pl.exclude(*PROMPTS_SCHEMA, "query"))
        bank.add_prompts(own.name, table)
        for number, (run, step) in enumerate((run, step) for run in runs for step in steps):
            logits = np.random.default_rng(number).normal(size=(len(queries.queries), VOCAB))
            bank.deposit(
                logits.astype(np.float32),
                checkpoint=CheckpointId("toy", run, step),
                query_set=queries.name,
            )
    return bank
