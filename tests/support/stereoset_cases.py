"""Small StereoSet data for tests: candidates, gold and prediction files, and a bank."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.frames.candidates import LABELS
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.made_once import made_once
from tests.support.paths import PUBLIC as DATA

VOCAB = 8

Example = tuple[str, str, tuple[float, float, float]]
"""Term, domain, and the scores of stereotype, anti-stereotype and unrelated."""

EXAMPLES: Sequence[Example] = (
    ("nurse", "profession", (3.0, 2.0, 1.0)),  # pro 1, related 2
    ("nurse", "profession", (1.0, 2.0, 1.5)),  # pro 0, related 1
    ("guitarist", "profession", (2.0, 1.0, 3.0)),  # pro 1, related 0
    ("Norwegian", "race", (2.0, 2.0, 2.0)),  # three ties
)
"""By term: nurse ss 50, lms 75; guitarist ss 100, lms 0; Norwegian ss 0, lms 0."""


def released(name: str) -> Path:
    """A file of the public data, or the test is skipped."""
    path = DATA / "stereoset" / name
    if not path.is_file():
        pytest.skip(f"needs {path}; set LOGITBANK_DATA")
    return path


def candidates(
    examples: Sequence[Example] = EXAMPLES, *, task: str = "intrasentence", **columns: Any
) -> pl.DataFrame:
    """One checkpoint's candidates; columns may be given, such as step or condition."""
    usual = {
        "model": "m", "run": "main", "step": None, "language": "en",
        "condition": "plain", "score": "reference", "score_kind": "file", "task": task,
    }  # fmt: skip
    rows = [
        {
            **usual,
            **columns,
            "example": f"{task}-{at}",
            "candidate": f"{task}-{at}-{label}",
            "term": term,
            "domain": domain,
            "label": label,
            "value": value,
        }
        for at, (term, domain, values) in enumerate(examples)
        for label, value in zip(LABELS, values, strict=True)
    ]
    return pl.DataFrame(rows, schema_overrides={"step": pl.Int64})


def gold_data(**tasks: Sequence[Example]) -> dict[str, Any]:
    """The content of a gold file; ids are `<task>-<number>-<label>`."""
    return {
        "version": "1.0",
        "data": {
            task: [
                {
                    "id": f"{task}-{at}",
                    "target": term,
                    "bias_type": domain,
                    "context": "BLANK",
                    "sentences": [
                        {"id": f"{task}-{at}-{label}", "gold_label": label, "sentence": "x"}
                        for label in LABELS
                    ],
                }
                for at, (term, domain, _) in enumerate(examples)
            ]
            for task, examples in tasks.items()
        },
    }


def prediction_data(**tasks: Sequence[Example]) -> dict[str, list[dict[str, Any]]]:
    """The content of a prediction file for `gold_data` of the same examples."""
    return {
        task: [
            {"id": f"{task}-{at}-{label}", "score": value}
            for at, (_, _, values) in enumerate(examples)
            for label, value in zip(LABELS, values, strict=True)
        ]
        for task, examples in tasks.items()
    }


def write_json(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def prompt_rows(
    query_set: QuerySet, *, kind: str, task: str, pieces: int = 2, first: int = 0, **columns: str
) -> pl.DataFrame:
    """Prompts of `EXAMPLES`: `pieces` queries for each candidate, from row `first` on."""
    own = {"language": "en", "condition": "plain", "score_kind": kind, **columns}
    rows, extra = [], []
    for at, (term, domain, _) in enumerate(EXAMPLES):
        for place, label in enumerate(LABELS):
            for piece in range(pieces):
                row = first + (at * 3 + place) * pieces + piece
                name = f"{task}-{at}-{label}"
                rows.append((name, None, piece, "x", None, "w", "w", 1, None, query_set.name, row))
                about = {"example": f"{task}-{at}", "domain": domain, "label": label}
                extra.append(about | {"target": f"die {term}", "target_english": term} | own)
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    return pl.concat([table, pl.DataFrame(extra)], how="horizontal")


KINDS: Mapping[str, tuple[str, str, int]] = {
    "stereoset-intra": ("masked", "intrasentence", 2),
    "stereoset-inter": ("nsp", "intersentence", 1),
}


@made_once
def make_bank(path: Path, *, model: str = "toy", steps: Sequence[int | None] = (0, 8)) -> Path:
    """Both tasks of `EXAMPLES` at some steps, with drawn logits."""
    bank = Bank.create(path)
    for number, (name, (kind, task, pieces)) in enumerate(KINDS.items()):
        queries = tuple(Query((number, i), 1) for i in range(len(EXAMPLES) * 3 * pieces))
        query_set = QuerySet("ab" * 32, queries)
        bank.add_query_set(query_set)
        bank.add_prompts(name, prompt_rows(query_set, kind=kind, task=task, pieces=pieces))
        for step in steps:
            seed = (number, 99 if step is None else step)
            logits = np.random.default_rng(seed).normal(size=(len(queries), VOCAB))
            bank.deposit(
                logits.astype(np.float32),
                checkpoint=CheckpointId(model, step=step),
                query_set=query_set.name,
            )
    return path
