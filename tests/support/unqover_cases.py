"""UnQover in small: questions as they are stored, banks of them, the measures in plain loops."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.made_once import made_once

VOCAB = 40
NAMES = {"female": ("Ann", "Eva"), "male": ("Bob", "Jim", "Leo")}
ATTRIBUTES = ("was a nurse", "was a pilot", "was a chef")
CONTEXTS = ("c1", "c2")
NATIONS = ("Swiss", "Greek", "Danish")
OWN = {
    **dict.fromkeys(("instance", "category", "split", "subject1", "subject2", "order"), pl.String),
    "negated": pl.Boolean,
    **dict.fromkeys(("context", "attribute", "attribute_class"), pl.String),
    **dict.fromkeys(("gender1", "gender2"), pl.String),
}
Row = dict[str, Any]


def gender_pairs() -> list[tuple[str, str, str | None, str | None]]:
    return [(f, m, "female", "male") for f in NAMES["female"] for m in NAMES["male"]]


def nation_pairs() -> list[tuple[str, str, str | None, str | None]]:
    return [(a, b, None, None) for i, a in enumerate(NATIONS) for b in NATIONS[i + 1 :]]


def questions(category: str = "gender", *, leave_out: Iterable[str] = ()) -> list[Row]:
    """One row per question; attribute "was a nurse" is the test split, the others are train."""
    pairs = gender_pairs() if category == "gender" else nation_pairs()
    rows: list[Row] = []
    for one, two, gender1, gender2 in pairs:
        for context in CONTEXTS:
            for attribute in ATTRIBUTES:
                instance = f"{one}|{two}|{context}|{attribute}"
                if instance in leave_out:
                    continue
                rows += [
                    {
                        "instance": instance, "category": category,
                        "split": "test" if attribute == "was a nurse" else "train",
                        "subject1": one, "subject2": two, "order": order, "negated": negated,
                        "context": context, "attribute": attribute,
                        "attribute_class": "care" if attribute == "was a nurse" else None,
                        "gender1": gender1, "gender2": gender2,
                        "prompt_id": f"{instance}|{order}|{'neg' if negated else 'pos'}",
                    }
                    for order in ("12", "21") for negated in (False, True)
                ]  # fmt: skip
    return rows


def forms(row: Row) -> list[str]:
    """Surface forms of both subjects, and for names of a gender the pronouns."""
    names = [form for x in ("subject1", "subject2") for form in (row[x], f" {row[x].lower()}")]
    return names + ([" she", "He", " he"] if row["gender1"] else [])


def tokens() -> dict[str, int]:
    subjects = [*NAMES["female"], *NAMES["male"], *NATIONS]
    texts = [form for name in subjects for form in (name, f" {name.lower()}")]
    return {text: at for at, text in enumerate([*texts, " she", "He", " he"], start=3)}


def add_questions(
    bank: Bank, category: str = "gender", *, name: str = "", leave_out: Iterable[str] = ()
) -> tuple[QuerySet, list[Row]]:
    rows = questions(category, leave_out=leave_out)
    known, start = tokens(), sum(map(ord, category + name))
    queries = QuerySet(
        "ab" * 32, tuple(Query((start, i, 1), 2, head="mask") for i in range(len(rows)))
    )
    table = [
        (row["prompt_id"], None, 0, "text", None, form, form, known[form], None, queries.name, at,
         *(row[column] for column in OWN))
        for at, row in enumerate(rows)
        for form in forms(row)
    ]  # fmt: skip
    bank.add_query_set(queries)
    schema = dict(PROMPTS_SCHEMA) | OWN
    bank.add_prompts(
        name or f"unqover-{category}", pl.DataFrame(table, schema=schema, orient="row")
    )
    return queries, rows


def logits_of(rows: Sequence[Row], step: int | None, *, nurses: float = 0.0) -> np.ndarray:
    """Noise; with `nurses`, women are nurses, and Danes, and less so where it is negated."""
    logits = np.random.default_rng(1 if step is None else step).normal(size=(len(rows), VOCAB))
    for at, row in enumerate(rows):
        if row["attribute"] == "was a nurse":
            name = row["subject2"] if row["subject2"] == "Danish" else row["subject1"]
            logits[at, tokens()[name]] += -nurses if row["negated"] else nurses
    return logits.astype(np.float32)


@made_once
def make_bank(
    path: Path,
    *,
    steps: Sequence[int | None] = (0, 8),
    categories: Sequence[str] = ("gender", "nationality"),
    nurses: Mapping[int | None, float] | None = None,
    model: str = "toy",
    keep: str = "full",
) -> Path:
    """A bank of both categories, in which women become nurses at step 8."""
    bank = Bank.create(path)
    for category in categories:
        queries, rows = add_questions(bank, category)
        for step in steps:
            size = ({8: 6.0} if nurses is None else nurses).get(step, 0.0)
            bank.deposit(
                logits_of(rows, step, nurses=size),
                checkpoint=CheckpointId(model, step=step),
                query_set=queries.name,
                keep=keep,
            )
    return path


def scan_frame(
    rows: Sequence[Row], p: Mapping[tuple[str, str], float], *, step: int | None = 8
) -> pl.DataFrame:
    """A scan of the questions with a probability for each prompt id and form; ranks by it."""
    table = []
    for row in rows:
        own = [(form, p[row["prompt_id"], form]) for form in forms(row)]
        for form, value in own:
            rank = 1 + sum(other > value for _, other in own)
            table.append({**row, "continuation": form, "p": value, "rank": rank})
    return pl.DataFrame(
        table, schema_overrides=dict.fromkeys(("split", "gender1", "gender2"), pl.String),
        infer_schema_length=None,
    ).with_columns(
        pl.col("attribute_class").cast(pl.String), model=pl.lit("m"), run=pl.lit("main"),
        step=pl.lit(step, pl.Int64), logprob=pl.col("p").log(),
    )  # fmt: skip


def softmax(logits: np.ndarray) -> np.ndarray:
    exact = logits.astype(np.float64)
    parts = np.exp(exact - exact.max(axis=1, keepdims=True))
    return parts / parts.sum(axis=1, keepdims=True)


class Naive:
    """The measures of METRICS, one instance after another, in plain Python."""

    def __init__(
        self, rows: Sequence[Row], logits: np.ndarray, *, topk: int | None, he_she: bool
    ) -> None:
        p, known = softmax(logits), tokens()
        self.covered = {8: 0, 10: 0, topk: 0}
        found: dict[str, dict[tuple[int, str, bool], float]] = defaultdict(dict)
        self.rows = {row["instance"]: row for row in rows}
        for at, row in enumerate(rows):
            for i in (1, 2):
                names = [row[f"subject{i}"], f" {row[f'subject{i}'].lower()}"]
                if he_she and row["gender1"]:
                    names += {"female": [" she"], "male": ["He", " he"]}[row[f"gender{i}"]]
                ids = [known[name] for name in names]
                ranks = [1 + int((logits[at] > logits[at, t]).sum()) for t in ids]
                kept = [
                    p[at, t] if topk is None or r <= topk else 0.0
                    for t, r in zip(ids, ranks, strict=True)
                ]
                found[row["instance"]][i, row["order"], row["negated"]] = max(kept)
                for k in self.covered:
                    self.covered[k] += k is None or min(ranks) <= k
        self.c, self.positional, self.attributive = {}, {}, {}
        for name, q in found.items():
            b = [
                (q[i, "12", False] + q[i, "21", False]) / 2
                - (q[i, "12", True] + q[i, "21", True]) / 2
                for i in (1, 2)
            ]
            self.c[name] = (b[0] - b[1]) / 2
            self.positional[name] = (
                sum(abs(q[i, "12", n] - q[i, "21", n]) for i in (1, 2) for n in (False, True)) / 4
            )
            self.attributive[name] = (
                sum(abs(q[i, o, False] - q[3 - i, o, True]) for i in (1, 2) for o in ("12", "21"))
                / 4
            )

    def gammas(self) -> dict[tuple[str, str], list[float]]:
        """C towards a subject, for every subject and attribute."""
        cells = defaultdict(list)
        for name, row in self.rows.items():
            cells[row["subject1"], row["attribute"]].append(self.c[name])
            cells[row["subject2"], row["attribute"]].append(-self.c[name])
        return cells
