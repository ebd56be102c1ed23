"""Small banks with LAMBADA, CrowS-Pairs and stereotype prompts, made from arrays."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.made_once import made_once

VOCAB = 12
Prompt = tuple[str, Sequence[int], Mapping[str, object]]
"""Id, the tokens of its pieces, columns of its own."""


def add_pieces(
    bank: Bank, name: str, prompts: Sequence[Prompt], *, head: str = "next_token"
) -> QuerySet:
    """A prompt set with one query per piece, whose one option is the piece's token."""
    places = [(i, p) for i, (_, tokens, _) in enumerate(prompts) for p in range(len(tokens))]
    start = sum(map(ord, name))  # so that the query sets of a bank differ
    queries = QuerySet(
        "ab" * 32,
        tuple(Query((start, i, p), 2, head=head) for i, p in places),  # type: ignore[arg-type]
    )
    rows = [
        (prompts[i][0], None, p, prompts[i][0], None, "target", str(prompts[i][1][p]),
         prompts[i][1][p], None, queries.name, row)
        for row, (i, p) in enumerate(places)
    ]  # fmt: skip
    own = pl.DataFrame([prompts[i][2] for i, _ in places])
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    bank.add_query_set(queries)
    bank.add_prompts(name, pl.concat([table, own], how="horizontal"))
    return queries


def deposit(
    bank: Bank, queries: QuerySet, logits: np.ndarray, *, step: int | None, model: str = "toy"
) -> None:
    bank.deposit(
        logits.astype(np.float32), checkpoint=CheckpointId(model, step=step), query_set=queries.name
    )


def add_lambada(
    bank: Bank, hits: Mapping[int, int], *, words: int = 40, model: str = "toy"
) -> None:
    """Steps to the number of right words, each of two tokens; the first ones are right."""
    prompts: list[Prompt] = [(f"l{i:02}", (1, 2), {"target": f" w{i}"}) for i in range(words)]
    queries = add_pieces(bank, "lambada", prompts)
    for step, right in hits.items():
        logits = np.random.default_rng(step).normal(size=(2 * words, VOCAB))
        for row in range(2 * words):
            target = 1 + row % 2
            logits[row, target] = 9 if row // 2 < right else -1
        deposit(bank, queries, logits, step=step, model=model)


def add_crows_pairs(bank: Bank, *, steps: Sequence[int] = (0, 8), model: str = "toy") -> None:
    """Twelve pairs; at step 8 the stereotyping sentence is always the more probable one."""
    prompts: list[Prompt] = [
        (f"{i}-{side}", (1, 2, 3), {
            "pair": i, "side": side, "direction": "antistereo" if i % 4 == 3 else "stereo",
            "bias_type": "gender" if i % 2 else "race-color", "score_kind": "sentence",
        })
        for i in range(12) for side in ("more", "less")
    ]  # fmt: skip
    queries = add_pieces(bank, "crows-pairs", prompts)
    for step in steps:
        logits = np.random.default_rng(step).normal(size=(72, VOCAB))
        if step >= 8:
            for row in range(72):
                logits[row, 1 + row % 3] = 5 if (row // 3) % 2 == 0 else -5
        deposit(bank, queries, logits, step=step, model=model)


def add_stereotype(bank: Bank, *, steps: Sequence[int] = (0, 8), model: str = "toy") -> None:
    """Ten sentences in both orders; at step 8 the original pronoun wins in all but one."""
    pronouns = {"he": 1, "she": 2}
    prompts = [(i, first) for i in range(10) for first in pronouns]
    queries = QuerySet("ab" * 32, tuple(Query((90, i, 0), 2) for i in range(len(prompts))))
    gold = ["he" if i % 2 else "she" for i in range(10)]
    rows = [
        (f"s{i}-{first}", None, 0, "text", gold[i], label, f" {label}", token, label == gold[i],
         queries.name, row, f"dev-{i}", "nurse", first, 2)
        for row, (i, first) in enumerate(prompts)
        for label, token in pronouns.items()
    ]  # fmt: skip
    own = {
        "sentence_id": pl.String, "occupation": pl.String, "order": pl.String, "type": pl.Int64,
    }  # fmt: skip
    bank.add_query_set(queries)
    bank.add_prompts(
        "stereotype-accuracy", pl.DataFrame(rows, schema=dict(PROMPTS_SCHEMA) | own, orient="row")
    )
    for step in steps:
        logits = np.random.default_rng(step).normal(size=(len(prompts), VOCAB))
        if step >= 8:
            for row, (i, _) in enumerate(prompts):
                logits[row, pronouns[gold[i]]] = 4 if i else -4
        deposit(bank, queries, logits, step=step, model=model)


def add_winobias(bank: Bank, *, steps: Iterable[int], skew_from: int, model: str = "toy") -> None:
    """Twelve sentences; from a step on, answers are "male" whatever is asked."""
    options = {"male": 1, "female": 2, "not specified": 3}
    gold = ("male", "female", "not specified", "not specified")
    prompts = 48
    queries = QuerySet("ab" * 32, tuple(Query((7, i), 1) for i in range(prompts)))
    rows = [
        (f"p{i}", 0, 0, f"prompt {i}", gold[i % 4], label, f" {label}", token, label == gold[i % 4],
         queries.name, i, f"dev-{i // 4}", True, "pro" if i % 8 < 4 else "anti",
         "referred" if i % 4 < 2 else "other")
        for i in range(prompts)
        for label, token in options.items()
    ]  # fmt: skip
    own = {
        "sentence_id": pl.String, "paired": pl.Boolean, "stereotype": pl.String,
        "asked": pl.String,
    }  # fmt: skip
    bank.add_query_set(queries)
    bank.add_prompts(
        "winobias", pl.DataFrame(rows, schema=dict(PROMPTS_SCHEMA) | own, orient="row")
    )
    for step in steps:
        logits = np.random.default_rng(step).normal(size=(prompts, VOCAB))
        if step >= skew_from:
            logits[:, options["male"]] += 4
        deposit(bank, queries, logits, step=step, model=model)


def add_specified(bank: Bank, *, steps: Iterable[int], model: str = "toy") -> None:
    """What follows " not", for `add_winobias`; " specified" is token 4, and surer with each step.

    Of four prompts in a row, one asks for "male", one for "female", and two for neither.
    """
    gold = ("male", "female", "not specified", "not specified")
    queries = QuerySet("ab" * 32, tuple(Query((8, i), 1) for i in range(12)))
    rows = [
        (f"p{i}-0", None, 0, f"prompt {i} not", None, "specified", " specified", 4, None,
         queries.name, i, f"dev-{i // 4}", gold[i % 4])
        for i in range(12)
    ]  # fmt: skip
    own = {"sentence_id": pl.String, "gold": pl.String}
    bank.add_query_set(queries)
    bank.add_prompts(
        "winobias-not", pl.DataFrame(rows, schema=dict(PROMPTS_SCHEMA) | own, orient="row")
    )
    for at, step in enumerate(steps):
        deposit(bank, queries, specified_logits(at), step=step, model=model)


def specified_logits(at: int) -> np.ndarray:
    """The logits of `add_specified` at the checkpoint with this number: (12, `VOCAB`)."""
    logits = np.random.default_rng(at).normal(size=(12, VOCAB))
    logits[:, 4] += 2 * at - 1
    return logits


def winobias_bank(path: Path, *, model: str = "toy", skew_from: int = 2, steps: int = 4) -> Path:
    """WinoBias alone, at the steps from 0 on."""
    add_winobias(Bank.create(path), steps=range(steps), skew_from=skew_from, model=model)
    return path


HITS = {0: 0, 8: 10, 16: 26, 32: 30, 64: 28, 128: 29}


@made_once
def whole_bank(path: Path, *, model: str = "toy", skew_from: int = 32) -> Path:
    """WinoBias and LAMBADA at six steps; the other prompts at two."""
    bank = Bank.create(path)
    add_winobias(bank, steps=list(HITS), skew_from=skew_from, model=model)
    add_lambada(bank, HITS, model=model)
    add_crows_pairs(bank, model=model)
    add_stereotype(bank, model=model)
    return path
