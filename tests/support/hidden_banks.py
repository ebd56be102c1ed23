"""Small banks that keep states and heads; what they must give is worked out in float64 by hand."""

from pathlib import Path

import numpy as np
import polars as pl

from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    Operation,
    OutputHead,
)
from logitbank.store.format.schema import SCORES_SCHEMA, Dtype
from tests.support.small_banks import BLOCK_ROWS, QUERIES, QUERY_SET, TOKENIZER, VOCAB, new_bank

WIDTH = 5


def states(seed: int = 0, *, queries: int = QUERIES, width: int = WIDTH) -> np.ndarray:
    """(q, width) float32, of which float16 holds every number."""
    values = np.random.default_rng(seed).normal(size=(queries, width))
    return values.astype(np.float16).astype(np.float32)


def head(seed: int = 1, *, vocab: int = VOCAB, width: int = WIDTH) -> OutputHead:
    """With a bias and a soft cap, in float16."""
    made = np.random.default_rng(seed)
    weight = made.normal(size=(vocab, width)).astype(np.float16)
    bias = made.normal(size=vocab).astype(np.float32)
    return OutputHead(weight, "float16", bias, (Operation("soft_cap", 5.0),))


def true_logits(of: OutputHead, rows: np.ndarray) -> np.ndarray:
    """Logits (q, v) of `head()` in float64, from the definition."""
    assert of.bias is not None
    product = rows.astype(np.float64) @ of.weight.astype(np.float64).T + of.bias
    return 5.0 * np.tanh(product / 5.0)


def true_logprobs(of: OutputHead, rows: np.ndarray) -> np.ndarray:
    logits = true_logits(of, rows)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def hidden_spec(
    step: int | None = 0,
    *,
    digest: str,
    dtype: Dtype = "float32",
    vocab: int = VOCAB,
    width: int = WIDTH,
    **provenance: str,
) -> DepositSpec:
    layout = Layout(QUERIES, vocab, dtype, Keep("hidden"), BLOCK_ROWS, width=width)
    made = {"weights": "ab" * 32, "tokenizer": TOKENIZER, "engine": "test", **provenance}
    checkpoint = CheckpointId("org/model", step=step)
    heads = {"next_token": digest}
    return DepositSpec(checkpoint, QUERY_SET.name, layout, vocab, made, heads)  # type: ignore[arg-type]


def hidden_block(layout: Layout, block: int, of: OutputHead, *, seed: int = 0) -> BlockData:
    """A block's states, and the exact scores of tokens 1 and 4 and of the highest."""
    rows = layout.rows(block)
    values = states(seed, queries=layout.queries, width=of.width)[rows.start : rows.stop]
    logits = true_logits(of, values)
    logsumexp = np.log(np.exp(logits).sum(axis=1))
    scores = [
        (row, token, kind, logits[i, token], logsumexp[i], rank, 0, 0, 0, True)
        for i, row in enumerate(rows)
        for token, kind in ((1, "option"), (4, "option"), (int(logits[i].argmax()), "top"))
        for rank in [1 + int((logits[i] > logits[i, token]).sum())]
    ]
    frame = pl.DataFrame(scores, schema=SCORES_SCHEMA, orient="row", strict=False)
    return BlockData(values.astype(layout.dtype), frame)


def hidden_bank(
    path: Path,
    *,
    steps: tuple[int | None, ...] = (0,),
    dtype: Dtype = "float32",
    blocks: range | None = None,
    seal: bool = True,
) -> Bank:
    """A bank whose checkpoints keep states; step n has the head of seed n + 1 and states of n."""
    bank = new_bank(path)
    for step in steps:
        fill(bank, step, dtype=dtype, blocks=blocks, seal=seal)
    return bank


def fill(
    bank: Bank,
    step: int | None,
    *,
    dtype: Dtype = "float32",
    blocks: range | None = None,
    seal: bool = True,
) -> None:
    seed = step or 0
    of = head(seed + 1)
    spec = hidden_spec(step, digest=bank.put_head(of), dtype=dtype)
    with bank.begin(spec) as writer:
        for block in range(writer.layout.blocks) if blocks is None else blocks:
            writer.write(block, hidden_block(writer.layout, block, of, seed=seed))
        if seal:
            writer.seal()
