"""Banks with requests of lm-evaluation-harness, from random logits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_sets
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.store import Bank, CheckpointId, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.checkpoints import LONGEST, VOCAB, write_tokenizer
from tests.support.lm_eval_tasks import write_tasks


def harness_bank(
    folder: Path,
    names: Sequence[str],
    *,
    steps: Sequence[int],
    runs: Sequence[str] = ("main",),
    part: Mapping[str, int] | None = None,
) -> Bank:
    """`folder/b.zarr`, with prompt sets of tasks in `folder/tasks`: names and their options.

    `part` names a task and a step that has the first half of its requests only.
    """
    folder.mkdir(exist_ok=True)
    tasks = write_tasks(folder / "tasks")
    write_tokenizer(folder / "tokenizer")
    (folder / "tokenizer" / "config.json").write_text('{"model_type": "gpt_neox"}')
    tokenizer = Tokenizer.load(folder / "tokenizer")
    bank = Bank.create(folder / "b.zarr")
    specs = [f"lm-eval:{name}{',' if ':' in name else ':'}include={tasks}" for name in names]
    for own in prompt_sets(specs, data=None):
        late = [at for task, at in (part or {}).items() if own.name.endswith(task)]
        half = replace(own, prompts=own.prompts[: len(own.prompts) // 2])
        sets = {step: _add(bank, half if step in late else own, tokenizer) for step in steps}
        for number, (run, step) in enumerate((run, step) for run in runs for step in steps):
            queries = sets[step]
            logits = np.random.default_rng(number).normal(size=(len(queries.queries), VOCAB))
            bank.deposit(
                logits.astype(np.float32),
                checkpoint=CheckpointId("toy", run, step),
                query_set=queries.name,
                keep="options",
            )
    return bank


def _add(bank: Bank, prompts: PromptSet, tokenizer: Tokenizer) -> QuerySet:
    tokenized = tokenize(prompts, tokenizer, LONGEST)
    queries = QuerySet(tokenizer.digest, tokenized.queries)
    table = tokenized.table.with_columns(query_set=pl.lit(queries.name), row="query")
    bank.add_query_set(queries)
    columns = table.select(*PROMPTS_SCHEMA, pl.exclude(*PROMPTS_SCHEMA, "query"))
    bank.add_prompts(prompts.name, columns)
    return queries
