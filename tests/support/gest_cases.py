"""GEST of 16 stereotypes and a few sentences each: data files, and banks made from arrays."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from logitbank.store import Bank, CheckpointId
from tests.support.evaluation_banks import VOCAB, Prompt, add_pieces
from tests.support.made_once import made_once

STEREOTYPES = 16
TEMPLATES = 2
MALE, FEMALE = 1, 2
"""Tokens of the words that differ."""


def write_data(folder: Path, *sentences: tuple[str, int]) -> Path:
    """`gest/gest.csv` in a data folder, which is returned."""
    (folder / "gest").mkdir(parents=True, exist_ok=True)
    rows = [f'"{sentence}",{stereotype}' for sentence, stereotype in sentences]
    (folder / "gest" / "gest.csv").write_text("\n".join(["sentence,stereotype", *rows, ""]))
    return folder


def add_gest(bank: Bank, *, of_each: int = 3) -> str:
    """The prompts of a causal model, with one token for each version; the name of its queries."""
    prompts: list[Prompt] = [
        (f"{i}-causal-{template}-{version}", (token,), {
            "sentence_id": i, "stereotype_id": i % STEREOTYPES + 1, "template": template,
            "version": version, "score_kind": "target",
        })
        for i in range(of_each * STEREOTYPES)
        for template in range(1, TEMPLATES + 1)
        for version, token in (("male", MALE), ("female", FEMALE))
    ]  # fmt: skip
    return add_pieces(bank, "gest", prompts).name


@made_once
def make_bank(path: Path, *, steps: Sequence[int] = (0, 8), seeds: Sequence[int] = (1, 2)) -> Path:
    """From step 8 on, men are more probable with stereotypes about men."""
    bank = Bank.create(path)
    queries = add_gest(bank)
    rows = np.arange(len(bank.query_set(queries)))
    about_men = rows // (2 * TEMPLATES) % STEREOTYPES >= 7
    for seed in seeds:
        for step in steps:
            logits = np.random.default_rng((seed, step)).normal(size=(len(rows), VOCAB))
            if step >= 8:
                logits[about_men & (rows % 2 == 0), MALE] += 2
            bank.deposit(
                logits.astype(np.float32),
                checkpoint=CheckpointId("toy", f"seed{seed}", step, seed),
                query_set=queries,
            )
    return path
