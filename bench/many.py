"""A bank of many small deposits: what it takes to say what is there, and to query all of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple
from unittest.mock import patch

from bench.figures import Figure
from bench.work import taken

DEPOSITS, PROMPTS, VOCAB = 5_000, 10, 100
SQL = "SELECT step, AVG(logprob) FROM scores GROUP BY step ORDER BY step"


class _Most(NamedTuple):
    """What is aimed at."""

    arguments: tuple[str, ...]
    seconds: float
    peak_mb: float


WORK = {"info": _Most((), 1.0, 250), "query": _Most((SQL, str(DEPOSITS)), 1.5, 250)}


def many(tmp: Path, *, rounds: int = 5) -> Iterator[Figure]:
    """Seconds, imports included, and the process's peak memory."""
    bank = small_deposits(tmp, deposits=DEPOSITS)
    for work, most in WORK.items():
        seconds, peaks = taken(work, bank, *most.arguments, rounds=rounds)
        name, took, peak = f"{work} of {DEPOSITS:,} deposits", median(seconds), max(peaks)
        yield Figure(name, took, "s", f"≤ {most.seconds:g} s", took <= most.seconds, seconds)
        yield Figure(
            *(f"{name}: peak memory", peak, "MB", f"≤ {most.peak_mb:g} MB", peak <= most.peak_mb),
            peaks,
        )


def small_deposits(
    tmp: Path, *, deposits: int = DEPOSITS, prompts: int = PROMPTS, keep: str = "options"
) -> Path:
    """A bank with deposits of few prompts by as many steps of one model, made once."""
    path = tmp / f"deposits-{deposits}.zarr"
    if path.exists():
        return path
    import numpy as np
    import polars as pl

    from logitbank.store import Bank, CheckpointId, Query, QuerySet
    from logitbank.store.format.schema import PROMPTS_SCHEMA

    queries = QuerySet("5e" * 32, tuple(Query((row, 1), 1) for row in range(prompts)))
    rows = [
        (f"p{row}", None, 0, f"The nurse number {row} said that", " he", label, f" {label}", token,
         label == "he", queries.name, row)
        for row in range(prompts)
        for label, token in (("he", 3), ("she", 5))
    ]  # fmt: skip
    bank = Bank.create(path.with_suffix(".part"))
    bank.add_query_set(queries)
    bank.add_prompts("nurses", pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row"))
    random = np.random.default_rng(0)
    with patch.object(os, "fsync", lambda _: None):  # 50,000 of them; what is timed is reading
        for step in range(deposits):
            bank.deposit(
                random.normal(size=(prompts, VOCAB)).astype(np.float32),
                checkpoint=CheckpointId("drawn", step=step),
                query_set=queries.name,
                keep=keep,
            )
    bank.path.rename(path)
    return path
