"""Makes `format-1/states`, the bank of states and heads that every later version must read.

`python -m tests.data.make_format_1_states` made it once, and it is not made again: where it can no
longer be read, the reader is wrong and not the bank. `format-1/states.json` has the states and the
log-probabilities that they must give, worked out here in plain Python.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logitbank.store import (
    Bank,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    OutputHead,
    QuerySet,
    verify,
)
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.heads import Operation
from logitbank.store.format.schema import Dtype, Head
from logitbank.store.tables.prompt_tables import option_tokens
from tests.data.make_format_1 import (
    BLOCK_ROWS,
    CONTEXTS,
    ENTRIES,
    SENTENCES,
    VOCAB,
    prompts,
)

HERE = Path(__file__).parent
WIDTH = 3
Matrix = list[list[float]]


class Made(NamedTuple):
    """One deposit, and its head."""

    step: int
    query_set: QuerySet
    kind: Head
    dtype: Dtype
    """Of states."""
    weights: Dtype
    bias: bool
    after: Operation | None
    blocks: tuple[int, ...]


CAP, HALF = Operation("soft_cap", 5.0), Operation("scale", 0.5)
DEPOSITS = (
    Made(0, CONTEXTS, "next_token", "float32", "float16", True, CAP, (0, 1, 2)),
    Made(0, SENTENCES, "next_sentence", "float32", "float32", True, None, (0,)),
    Made(1, CONTEXTS, "next_token", "float16", "bfloat16", False, HALF, (0, 1, 2)),
    Made(2, CONTEXTS, "next_token", "float32", "float32", False, None, (2, 0)),
)


def sixteenths(seed: int, rows: int, columns: int) -> Matrix:
    """Numbers that every dtype here holds exactly."""
    return [
        [((seed + 29 * i + 13 * j * j) % 47 - 23) / 16 for j in range(columns)] for i in range(rows)
    ]


def logits_of(made: Made, states: Matrix, weight: Matrix, bias: list[float]) -> Matrix:
    """With the standard library alone."""
    after: Callable[[float], float] = float
    if made.after and made.after.name == "soft_cap":
        after = lambda x: 5.0 * math.tanh(x / 5.0)  # noqa: E731
    elif made.after:
        after = lambda x: 0.5 * x  # noqa: E731
    return [
        [
            after(math.fsum(s * w for s, w in zip(state, row, strict=True)) + b)
            for row, b in zip(weight, bias, strict=True)
        ]
        for state in states
    ]


def logprobs_of(logits: Matrix) -> Matrix:
    tops = [max(row) for row in logits]
    totals = [
        top + math.log(math.fsum(math.exp(z - top) for z in row))
        for row, top in zip(logits, tops, strict=True)
    ]
    return [[z - total for z in row] for row, total in zip(logits, totals, strict=True)]


def head_of(made: Made, weight: Matrix, bias: list[float]) -> OutputHead:
    stored = np.array(weight, np.float32)
    if made.weights == "bfloat16":  # the upper half of float32's bits: these numbers have no lower
        stored = (stored.view(np.uint32) >> 16).astype(np.uint16)
    elif made.weights == "float16":
        stored = stored.astype(np.float16)
    return OutputHead(
        stored,
        made.weights,
        np.array(bias, np.float32) if made.bias else None,
        (made.after,) if made.after else (),
    )


def deposit(bank: Bank, which: int, made: Made) -> dict[str, Any]:
    vocab = VOCAB if made.kind == "next_token" else 2
    states = sixteenths(which, len(made.query_set), WIDTH)
    weight = sixteenths(7 * which + 5, vocab, WIDTH)
    bias = sixteenths(which + 3, 1, vocab)[0] if made.bias else [0.0] * vocab
    logits = logits_of(made, states, weight, bias)
    keep = Keep("hidden")
    layout = Layout(len(made.query_set), vocab, made.dtype, keep, BLOCK_ROWS, width=WIDTH)
    checkpoint = CheckpointId("org/model_v1.0", step=made.step)
    about = {"weights": f"{made.step:02x}" * 32, "tokenizer": made.query_set.tokenizer}
    spec = DepositSpec(
        checkpoint,
        made.query_set.name,
        layout,
        min(ENTRIES, vocab),
        {**about, "engine": "arrays"},
        {made.kind: bank.put_head(head_of(made, weight, bias))},
    )
    with bank.begin(spec) as writer:
        for block in made.blocks:
            options = option_tokens(bank.path, made.query_set.name)
            entries = min(ENTRIES, vocab)
            reducer = BlockReducer(layout, block, options=options, vocab_entries=entries)
            for i, row in enumerate(layout.rows(block)):
                reducer.put_states([i], np.array([states[row]], np.float32))
                reducer.put(i, np.array(logits[row], np.float32))
            writer.write(block, reducer.finish())
        writer.seal()
    return {
        "step": made.step,
        "query_set": made.query_set.name,
        "after": repr(made.after),
        "rows": [row for block in sorted(made.blocks) for row in layout.rows(block)],
        "states": states,
        "logprobs": logprobs_of(logits),
    }


def main(folder: Path = HERE / "format-1") -> None:
    bank = Bank.create(folder / "states", title="Format 1, states", license="CC0-1.0")
    for query_set in (CONTEXTS, SENTENCES):
        bank.add_query_set(query_set)
    bank.add_prompts("wörter", prompts(CONTEXTS, (2, 11), order=0))
    bank.add_prompts("sätze/next", prompts(SENTENCES, (0, 1), order=None))
    values = [deposit(bank, which, made) for which, made in enumerate(DEPOSITS)]
    assert verify(bank) == ()
    (folder / "states.json").write_text(json.dumps(values, indent=0) + "\n")


if __name__ == "__main__":
    main()
