"""Makes `format-1/scores`, a bank of format 1 that every later version must read, and its values.

`python -m tests.data.make_format_1` made it once. It is not made again: where it can no longer be
read, the reader is wrong and not the bank. `format-1/scores.json` has the logits of every query and
what a scan must give, worked out here in plain Python. The levels are full, topk and options;
`make_format_1_states` makes the level hidden.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from logitbank.store import (
    Bank,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    Query,
    QuerySet,
    rescore,
    verify,
)
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.schema import PROMPTS_SCHEMA, Dtype
from logitbank.store.read.missing_scores import missing_options
from logitbank.store.tables.prompt_tables import option_tokens

HERE = Path(__file__).parent
VOCAB, ENTRIES, BLOCK_ROWS = 12, 10, 2
WORDS = QuerySet(
    "70" * 32,
    (
        Query((5, 7, 9), 2),
        Query((5, 7, 9), 1),
        Query((4, 3, 8), 1, "mask", (0, 0, 1)),
        Query((4, 3, 8), 2, "mask", language="de_CH"),
        Query((1, 2), 1),
    ),
)
CONTEXTS, _ = QuerySet.from_contexts(
    "70" * 32, [Query((5, 7, 9), 2), Query((5, 7), 1), Query((5, 7, 8, 1), 3), Query((1, 2), 1),
                Query((5, 9, 3), 0)]
)  # fmt: skip
SENTENCES = QuerySet(
    "70" * 32, tuple(Query((4, i, 8), 0, "next_sentence", (0, 0, 1)) for i in (5, 6))
)
TOPICS = ("Größe", "naïve <b>", "日本", "a\tb", "")
DEPOSITS: tuple[tuple[str, CheckpointId, str, Dtype, tuple[int, ...]], ...] = (
    ("full", CheckpointId("org/model_v1.0", step=0), "full", "float16", (0, 1, 2)),
    ("unsealed", CheckpointId("org/model_v1.0", step=1000), "full", "float32", (2, 0)),
    ("topk", CheckpointId("ü 100%", "seed 1", 7, 1), "topk:3", "float32", (0, 1, 2)),
    ("options", CheckpointId("..", "main", None), "options", "float16", (0, 1, 2)),
)


def logits(name: str, queries: int, vocab: int) -> list[list[float]]:
    """Numbers that float32 holds exactly, in sixteenths; rows hold equal ones."""
    seed = sum(map(ord, name))
    return [[((seed + 37 * q + 11 * v * v) % 97) / 16 - 3 for v in range(vocab)]
            for q in range(queries)]  # fmt: skip


def prompts(query_set: QuerySet, tokens: Sequence[int], *, order: int | None) -> pl.DataFrame:
    rows = [
        (f"p{row}", order, 0, f"{TOPICS[row]}?", None if row == 1 else "A", label, f" {label}",
         token, None if row == 1 else label == "A", query_set.name, row)
        for row in range(len(query_set))
        for label, token in zip("AB", tokens, strict=True)
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    topic = pl.Series("topic", [TOPICS[row] for row in frame["row"]])
    return frame.with_columns(topic, weight=pl.col("row") / 4)


def expected(row: list[float], token: int) -> dict[str, Any]:
    """What a scan gives of one option, with the standard library alone."""
    own, top = row[token], max(row)
    total = top + math.log(math.fsum(math.exp(z - top) for z in row))
    above = [i for i, z in enumerate(row) if z > own]
    equal = [i for i, z in enumerate(row) if z == own and i != token]
    entries = min(ENTRIES, len(row))
    return {
        "logit": own,
        "logprob": own - total,
        "rank": len(above) + 1,
        "ties": len(equal),
        "padding_above": sum(i >= entries for i in above),
        "padding_ties": sum(i >= entries for i in equal),
    }


def deposit(bank: Bank, query_set: QuerySet, which: int, *, vocab: int) -> list[list[float]]:
    name, checkpoint, keep, dtype, blocks = DEPOSITS[which]
    layout = Layout(len(query_set), vocab, dtype, Keep.parse(keep), BLOCK_ROWS)
    made = {"weights": f"{which:02x}" * 32, "tokenizer": query_set.tokenizer, "engine": "arrays",
            "source": {"repo": checkpoint.model, "revision": "main"}}  # fmt: skip
    values = logits(name, len(query_set), vocab)
    spec = DepositSpec(checkpoint, query_set.name, layout, min(ENTRIES, vocab), made)
    with bank.begin(spec) as writer:
        for block in blocks[: layout.blocks]:
            options = option_tokens(bank.path, query_set.name)
            reducer = BlockReducer(
                layout, block, options=options, vocab_entries=min(ENTRIES, vocab)
            )
            for i, row in enumerate(layout.rows(block)):
                reducer.put(i, np.array(values[row], np.float32))
            writer.write(block, reducer.finish())
        writer.seal()
    return values


def main(
    folder: Path = HERE / "format-1", bank_name: str = "scores", words: QuerySet = WORDS
) -> None:
    bank = Bank.create(
        folder / bank_name,
        title="Format 1 <1>",
        license="CC0-1.0",
        citation="Nobody, 2026",
    )
    for query_set in (words, SENTENCES):
        bank.add_query_set(query_set)
    tables = {"wörter": (words, (2, 11), 0), "sätze/next": (SENTENCES, (0, 1), None)}
    for name, (query_set, tokens, order) in tables.items():
        bank.add_prompts(name, prompts(query_set, tokens, order=order))
    found = []
    for which, (name, checkpoint, *_) in enumerate(DEPOSITS):
        values = {words.name: deposit(bank, words, which, vocab=VOCAB)}
        if which in (0, 3):
            values[SENTENCES.name] = deposit(bank, SENTENCES, which, vocab=2)
        found.append({"name": name, "model": checkpoint.model, "run": checkpoint.run,
                      "run_seed": checkpoint.run_seed, "step": checkpoint.step,
                      "logits": values})  # fmt: skip
    bank.add_prompts("wörter", prompts(words, (5, 6), order=1))  # read from the full rows
    for one in bank.deposits():
        if one.layout.keep.level == "full" and (options := missing_options(one)):
            rescore(one, options)
    assert verify(bank) == ()
    (folder / f"{bank_name}.json").write_text(
        json.dumps({"deposits": found, "scans": scans(found, tables)}, indent=0)
    )


def scans(found: list[dict[str, Any]], tables: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for which, made in enumerate(found):
        level, blocks = DEPOSITS[which][2], DEPOSITS[which][4]
        for name, (query_set, tokens, order) in tables.items():
            asked = [(order, tokens)]
            asked += [(1, (5, 6))] if query_set is not SENTENCES and level == "full" else []
            for seed, both in asked:
                for row, values in enumerate(made["logits"].get(query_set.name, [])):
                    if row // BLOCK_ROWS in blocks:
                        rows += [
                            {"deposit": made["name"], "prompts": name, "prompt_id": f"p{row}",
                             "order_seed": seed, "option": label, "token": token,
                             "exact": seed != 1, **expected(values, token)}
                            for label, token in zip("AB", both, strict=True)
                        ]  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
