"""A bank with full rows of two runs that learn from different starts."""

from pathlib import Path

import numpy as np

from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support.small_banks import TOKENIZER, VOCAB, prompt_table

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256)


def learning_bank(path: Path) -> None:
    """40 prompts: what is learned first is the same in both runs, and changes after step 128."""
    queries = QuerySet(TOKENIZER, tuple(Query((i, i + 1, 2), 2) for i in range(40)))
    bank = Bank.create(path)
    bank.add_query_set(queries)
    bank.add_prompts("parity", prompt_table(queries))
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 40, VOCAB)) * 4
    for run in ("seed0", "seed1"):
        own = rng.normal(size=(40, VOCAB))
        for step in STEPS:
            learned = 1 - np.exp(-step / 24)
            text = second if step > 128 else first
            values = own * (1 - learned / 2) + text * learned + rng.normal(size=own.shape) / 10
            checkpoint = CheckpointId("toy", run=run, step=step)
            rows = values.astype(np.float32)
            bank.deposit(rows, checkpoint=checkpoint, query_set=queries.name, dtype="float32")
