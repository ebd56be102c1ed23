"""States and heads in place of rows: the space that they take, and what reading them costs."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from bench.extraction import against
from bench.figures import Figure
from bench.store import ROWS, VOCAB, ratios, seconds
from logitbank.store import (
    Bank,
    CheckpointId,
    Deposit,
    DepositSpec,
    Keep,
    Layout,
    OptionTokens,
    OutputHead,
    Query,
    QuerySet,
)
from logitbank.store.change.rescore import option_scores
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.schema import Dtype

WIDTH = 512
QUERIES = 11_369
"""Distinct queries of WinoBias in five orders."""
TOKEN = 40_000


def states_figures(tmp: Path) -> Iterator[Figure]:
    bank = Bank.create(tmp / "states.zarr")
    queries = QuerySet("0" * 64, tuple(Query((i,), 0) for i in range(QUERIES)))
    bank.add_query_set(queries)
    few = QuerySet("0" * 64, tuple(Query((i,), 0) for i in range(2 * ROWS)))
    bank.add_query_set(few)
    full = _bytes(_deposit(bank, few, "full", "float16").path / "logprobs") / len(few)
    levels: tuple[tuple[Dtype, int, int], ...] = (("float32", 30, 8), ("float16", 60, 12))
    for dtype, target, whole in levels:
        deposit = _deposit(bank, queries, "hidden", dtype)
        each = _bytes(deposit.path / "hidden") / QUERIES
        yield _space(f"a query's state in {dtype}", full / each, target, f"{each:,.0f} bytes")
        (digest,) = deposit.spec.heads.values()
        size = QUERIES * each + _bytes(bank.path / "heads" / digest)
        yield _space(
            f"a checkpoint of {QUERIES:,}, head in {dtype}",
            QUERIES * full / size, whole, f"{size / 1e6:,.0f} MB",
        )  # fmt: skip
    yield from _reading(deposit)
    shutil.rmtree(bank.path)
    for shape, count, least, rounds in (("70m", 512, 0.97, 7), ("toy", 2048, 0.8, 3)):
        yield against(
            f"{shape}, states kept, against bare vLLM, 38 tokens", least, "bare_vllm",
            tmp=tmp, shape=shape, count=count, rounds=rounds, keep="hidden",
        )  # fmt: skip


def _space(what: str, times: float, target: int, about: str) -> Figure:
    name = f"{what}, 50,304 × 512: full float16 rows take so many times as much"
    return Figure(name, times, "×", f"≥ {target} ×", times >= target, [], about)


def _reading(deposit: Deposit) -> Iterator[Figure]:
    deposit.logprobs(tokens=[0])
    times = [1000 * seconds(lambda: deposit.logprobs(tokens=[TOKEN])) for _ in range(9)]
    value = median(times)
    name = f"one token of {QUERIES:,} rows, of states and head"
    yield Figure(name, value, "ms", "≤ 50 ms", value <= 50, times)
    (digest,) = deposit.spec.heads.values()
    head = Bank.open(deposit.path.parents[3]).head(digest).weight.astype(np.float32)
    states = deposit.hidden()
    out = np.empty((ROWS, VOCAB), np.float32)

    def product() -> None:
        for start in range(0, QUERIES, ROWS):
            some = states[start : start + ROWS]
            np.matmul(some, head.T, out=out[: len(some)])

    options = OptionTokens.build([[TOKEN]] * QUERIES)
    name = "the rank of a token that nobody listed, of states and head, against the product alone"
    yield ratios(name, 0.67, lambda: option_scores(deposit, options), product, rounds=3)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _deposit(bank: Bank, queries: QuerySet, keep: str, dtype: Dtype) -> Deposit:
    """Logits that come of made-up states, by a head in float32 where they are float32."""
    draw = np.random.default_rng(len(queries))
    wide: Dtype = "float16" if dtype == "float16" else "float32"
    weight = draw.normal(0, 0.1, (VOCAB, WIDTH)).astype(wide)
    head = OutputHead(weight, wide)
    hidden = keep == "hidden"
    layout = Layout(
        *(len(queries), VOCAB, dtype, Keep.parse(keep), ROWS), width=WIDTH if hidden else None
    )
    spec = DepositSpec(
        CheckpointId("m", step=len(bank.deposits())),
        queries.name,
        layout,
        VOCAB,
        {"weights": f"{len(bank.deposits()):064x}", "tokenizer": "0" * 64},
        {"next_token": bank.put_head(head)} if hidden else {},
    )
    with bank.begin(spec) as writer:
        for block in range(layout.blocks):
            rows = layout.rows(block)
            states = draw.normal(size=(len(rows), WIDTH)).astype(np.float32)
            logits = head.logits(states)
            options = OptionTokens.build([[1, 2, 3]] * layout.queries)
            reducer = BlockReducer(layout, block, options=options, vocab_entries=VOCAB)
            for i, row in enumerate(logits):
                if hidden:
                    reducer.put_states([i], states[i][None])
                reducer.put(i, row)
            writer.write(block, reducer.finish())
        writer.seal()
    return writer.deposit
