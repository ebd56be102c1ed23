"""`analyze distance` beside the decompression of its rows, by processor time and by the clock."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from bench.figures import Figure
from logitbank.analysis.families.distance.metric import distance_metric
from logitbank.analysis.frames.reader import Scores
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA

CONTEXTS, STEPS, VOCAB = 1024, 6, 50_304
MOST = 2.0


def distances(
    tmp: Path, *, rounds: int = 5, contexts: int = CONTEXTS, vocab: int = VOCAB
) -> Iterator[Figure]:
    """Seconds of all tables over those of reading every row once, each by turns."""
    bank = _bank(tmp / "distances.zarr", contexts, vocab)

    def read() -> None:
        for deposit in bank.deposits():
            for block in deposit.layout.row_ranges:
                deposit.logprobs(np.arange(block.start, block.stop))

    def compared() -> None:
        scores = Scores([bank], ("contexts",))  # a new one, which has read nothing
        assert len(distance_metric(scores).map) == STEPS**2

    read()  # fills the page cache
    turns = [(_seconds(read), _seconds(compared)) for _ in range(rounds)]
    by_processor, by_clock = ([own[at] / once[at] for once, own in turns] for at in (0, 1))
    ratio, clock = median(by_processor), median(by_clock)
    seconds = median(own[1] for _, own in turns)
    yield Figure(
        f"distances of {STEPS} checkpoints × {contexts:,} full rows, against decompressing them",
        *(ratio, "×", f"≤ {MOST:g} ×", ratio <= MOST, by_processor),
        f"processor time; by the clock {clock:.1f} ×, {seconds:.1f} s",
    )


def _seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Of the processor, in all threads, and of the clock."""
    start = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - start[0], time.perf_counter() - start[1]


def _bank(path: Path, contexts: int, vocab: int) -> Bank:
    bank, rng = Bank.create(path), np.random.default_rng(0)
    queries = QuerySet("ab" * 32, tuple(Query((1, row), 1) for row in range(contexts)))
    rows = [
        (f"p{row}", None, 0, f"p{row}", None, "target", "a", 1, None, queries.name, row)
        for row in range(contexts)
    ]
    bank.add_query_set(queries)
    bank.add_prompts("contexts", pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row"))
    for step in range(STEPS):
        logits = rng.standard_normal((contexts, vocab), np.float32) * 3
        place = CheckpointId("drawn", step=step)
        bank.deposit(logits, checkpoint=place, query_set=queries.name, dtype="float16")
    return bank
