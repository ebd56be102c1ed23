"""Small banks for tests: few queries, few outputs, made without a model."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    Deposit,
    DepositSpec,
    Keep,
    Layout,
    Query,
    QuerySet,
)
from logitbank.store.files import documents, objects
from logitbank.store.format.schema import PROMPTS_SCHEMA, SCORES_SCHEMA, TOKENS_SCHEMA, Dtype
from tests.support.made_once import made_once

QUERIES, VOCAB, BLOCK_ROWS = 10, 6, 4
TOKENIZER = "5e" * 32
QUERY_SET = QuerySet(TOKENIZER, tuple(Query((i, i + 1, 2), 2) for i in range(QUERIES)))
OPTIONS = {"yes": 1, "no": 4}


def prompt_table(query_set: QuerySet = QUERY_SET, **columns: object) -> pl.DataFrame:
    """One prompt a query, options "yes" (token 1, the answer) and "no" (token 4)."""
    rows = [
        (f"p{row}", None, 0, f"Is {row} even?", "yes", label, f" {label}", token, label == "yes",
         query_set.name, row)
        for row in range(len(query_set))
        for label, token in OPTIONS.items()
    ]  # fmt: skip
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    return table.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


TEXTS = ("<end>", " yes", " maybe", "a", " no", "\\xc3")
"""What the six tokens say; the last is half a letter."""


def token_table() -> pl.DataFrame:
    rows = [(i, text, text != TEXTS[5], i == 0) for i, text in enumerate(TEXTS)]
    return pl.DataFrame(rows, schema=TOKENS_SCHEMA, orient="row")


def new_bank(path: Path) -> Bank:
    return Bank.open(_empty(path))


@made_once
def _empty(path: Path) -> None:
    bank = Bank.create(path, title="small", license="CC0-1.0")
    bank.add_query_set(QUERY_SET)
    bank.add_prompts("parity", prompt_table())


def bank_of(path: Path, *steps: int, seed: int = 0, **provenance: str) -> Bank:
    """A new bank with a sealed deposit of each step, each with its own rows."""
    return Bank.open(_of_steps(path, *steps, seed=seed, **provenance))


@made_once
def _of_steps(path: Path, *steps: int, seed: int, **provenance: str) -> None:
    bank = new_bank(path)
    for step in steps:
        fill(bank, spec(step, **provenance), seed=seed + step)


def logits(seed: int = 0, *, queries: int = QUERIES, vocab: int = VOCAB) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(queries, vocab)).astype(np.float32) * 3


def spec(
    step: int | None = 0,
    *,
    keep: Keep = Keep("full"),  # noqa: B008
    dtype: Dtype = "float32",
    vocab: int = VOCAB,
    block_rows: int = BLOCK_ROWS,
    **provenance: str,
) -> DepositSpec:
    layout = Layout(QUERIES, vocab, dtype, keep, block_rows)
    made = {"weights": "ab" * 32, "tokenizer": TOKENIZER, "engine": "test", **provenance}
    return DepositSpec(CheckpointId("org/model", step=step), QUERY_SET.name, layout, vocab, made)


def block_data(layout: Layout, block: int, *, seed: int = 0) -> BlockData:
    """Made-up data that differ in every row; scores agree with logprobs."""
    rows = layout.rows(block)
    values = logits(seed, queries=layout.queries, vocab=layout.vocab)[rows.start : rows.stop]
    logsumexp = np.log(np.exp(values).sum(axis=1))
    logprobs = (values - logsumexp[:, None]).astype(layout.dtype)
    full = layout.keep.level == "full"
    scores = [
        (row, token, kind, values[i, token], logsumexp[i], 1, 0, 0, 0, True)
        for i, row in enumerate(rows)
        for token, kind in ((1, "option"), (4, "option"), (int(values[i].argmax()), "top"))
    ]
    frame = pl.DataFrame(scores, schema=SCORES_SCHEMA, orient="row", strict=False)
    return BlockData(logprobs if full else None, frame)


def fill(
    bank: Bank, spec: DepositSpec, *, blocks: Iterable[int] | None = None, seed: int = 0
) -> Deposit:
    """Write blocks of a deposit, the missing ones if None, and seal it if it is complete."""
    with bank.begin(spec) as writer:
        for block in writer.missing() if blocks is None else blocks:
            writer.write(block, block_data(writer.layout, block, seed=seed))
        writer.seal()
    return writer.deposit


def flip(path: Path, at: int | None = None) -> Path:
    """Flip the last bit of a byte of a file, by default of the one in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)
    return path


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a document, and give it the digest that it has then, as who made it so would."""
    document = json.loads(path.read_text())
    change(document)
    own = document["attributes"]["logitbank"] if path.name == "zarr.json" else document
    path.write_bytes(documents.signed(document, own))


def recommit(deposit: Path, relative: str) -> None:
    """Let the commits of a deposit vouch for what one of its objects is now."""
    told = objects.digest(deposit / relative)._asdict()
    for commit in deposit.glob("commits/*.json"):
        if relative in json.loads(commit.read_text())["objects"]:
            rewrite(commit, lambda content: content["objects"].update({relative: told}))


def resign_table(table: Path) -> None:
    """Let the digest beside a table be that of its bytes now."""
    beside = table.with_name(f"{table.name}.sha256")
    beside.write_text(f"{objects.digest(table).sha256}  {table.name}\n")
