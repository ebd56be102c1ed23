"""BBQ: a file of a few examples, and a bank in which answers are chosen."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from logitbank.engine.prompts.known.bbq import bbq
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.evaluation_banks import VOCAB
from tests.support.made_once import made_once

TEMPLATES = 12


def example(number: int, category: str = "Age", **fields: Any) -> dict[str, Any]:
    """Four in a row share a template: both polarities, with both contexts."""
    ambiguous = number % 2 == 0
    row = {
        "example_id": number, "question_index": str(number // 4 + 1), "category": category,
        "question_polarity": "neg" if number // 2 % 2 == 0 else "nonneg",
        "context_condition": "ambig" if ambiguous else "disambig",
        "context": "Ann and her grandmother met.", "question": f"Who forgot {number // 4}?",
        "answer_info": {"ans0": ["Ann", "nonOld"], "ans1": ["Not known", "unknown"],
                        "ans2": ["grandmother", "old"]},
        "additional_metadata": {"stereotyped_groups": ["old"]},
        "ans0": "Ann", "ans1": "Not known", "ans2": "The grandmother",
        "label": 1 if ambiguous else 0,
    }  # fmt: skip
    return row | fields


def write_file(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bank_of(path: Path, prompts: PromptSet, chosen: Mapping[int, Sequence[str]]) -> Bank:
    """One query for each prompt, one token for each option; at each step the most probable labels.

    An unknown label is a tie of all three.
    """
    queries = QuerySet("ab" * 32, tuple(Query((7, at), 1) for at in range(len(prompts.prompts))))
    rows = [
        (prompt.id, None, 0, prompt.text, prompt.answer, option.label, option.text, token,
         option.label == prompt.answer, queries.name, row)
        for row, prompt in enumerate(prompts.prompts)
        for token, option in enumerate(prompt.options)
    ]  # fmt: skip
    table = pl.DataFrame(rows, PROMPTS_SCHEMA, orient="row")
    own = pl.DataFrame([prompt.columns for prompt in prompts.prompts for _ in prompt.options])
    bank = Bank.create(path)
    bank.add_query_set(queries)
    bank.add_prompts("bbq", pl.concat([table, own], how="horizontal"))
    for step, labels in chosen.items():
        logits = np.zeros((len(labels), VOCAB), np.float32)
        for row, (prompt, label) in enumerate(zip(prompts.prompts, labels, strict=True)):
            for token, option in enumerate(prompt.options):
                logits[row, token] = 3 if option.label == label else 1
        checkpoint = CheckpointId("toy", step=step)
        bank.deposit(logits, checkpoint=checkpoint, query_set=queries.name)
    return bank


@made_once
def make_bank(path: Path) -> Path:
    """Two categories; from step 8 on, answers are biased, those about religion always."""
    rows = [
        example(number, category)
        for category in ("Age", "Religion")
        for number in range(4 * TEMPLATES)
    ]
    prompts = bbq(file=str(write_file(path.with_suffix(".jsonl"), rows)))
    later = [
        "biased" if prompt.columns["category"] == "Religion" or at % 3 else str(prompt.answer)
        for at, prompt in enumerate(prompts.prompts)
    ]
    bank_of(path, prompts, {0: ["unknown"] * len(rows), 8: later})
    return path
