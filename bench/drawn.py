"""Banks with many checkpoints and drawn logits."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl

from bench.models import public_data, series
from logitbank.engine.plan.engine_choice import engine_start
from logitbank.engine.plan.prepare import PlanInputs, plan_suite
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.request import ExtractRequest
from logitbank.engine.run import record_prompts
from logitbank.engine.suites.suites import resolve_suite
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Layout,
    OptionTokens,
    Query,
    QuerySet,
)
from logitbank.store.format.schema import PROMPTS_SCHEMA, SCORES_SCHEMA
from logitbank.store.tables.prompt_tables import option_tokens

STEPS = [0, *(2**k for k in range(10)), *range(1000, 144_000, 1000)]
"""Pythia's 154."""
MANY_STEPS = range(0, 1_475_000, 1000)
"""As many as Olmo 3 7B has."""


def drawn_bank(path: Path, tmp: Path, steps: Sequence[int] = STEPS) -> Path:
    """WinoBias in five orders at each step, at keep level options, made once."""
    if path.exists():
        return path
    part = path.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    bank = Bank.create(part)
    folder = series(tmp, "toy", 1)
    suite, prompts = resolve_suite(str(folder)), prompt_set("winobias", data=public_data())
    request = ExtractRequest(suites=suite, prompts=prompts, keep="options")
    inputs = PlanInputs(request=request, prompts=[prompts], bank=None, start=engine_start(request))
    prepared = plan_suite(inputs, suite, folder / "step0")
    record_prompts(bank, prepared)
    (plan,) = prepared.plan.deposits
    named = option_tokens(bank.path, plan.query_set)
    with patch.object(os, "fsync", lambda _: None):  # thousands of them; what is timed is reading
        for step in steps:
            spec = DepositSpec(
                CheckpointId("pythia", step=step), plan.query_set, plan.layout,
                prepared.tokenizer.entries, {"engine": "drawn"},
            )  # fmt: skip
            with bank.begin(spec) as writer:
                for block in range(plan.layout.blocks):
                    writer.write(block, _drawn(named, plan.layout, block, step))
                writer.seal()
    part.rename(path)
    return path


def _drawn(named: OptionTokens, layout: Layout, block: int, step: int) -> BlockData:
    """Options whose logits drift with the step, and a top entry for each query."""
    rows, rng = layout.rows(block), np.random.default_rng((step, block))
    options = [named.of(row) for row in rows]
    counts = [len(tokens) for tokens in options]
    listed, drift = sum(counts), np.log10(step + 1) / 5.2
    frames = []
    for kind, tokens, number in (
        ("option", np.concatenate(options), counts),
        ("top", np.full(len(rows), 7), [1] * len(rows)),
    ):
        n = listed if kind == "option" else len(rows)
        frames.append(
            pl.DataFrame(
                {
                    "query": np.repeat(np.arange(rows.start, rows.stop), number),
                    "token": tokens,
                    "kind": [kind] * n,
                    "logit": rng.normal(2 * drift * (tokens % 3), 1, n),
                    "logsumexp": np.full(n, 12.0),
                    "rank": np.exp(rng.normal(7 * (1 - drift) + 1, 0.6, n)).astype(int) + 1,
                    "ties": 0,
                    "padding_above": 0,
                    "padding_ties": 0,
                    "exact": True,
                }
            ).select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
        )
    return BlockData(None, pl.concat(frames))


def small_deposits(tmp: Path, *, deposits: int, prompts: int, keep: str = "options") -> Path:
    """A bank with deposits of few prompts by as many steps of one model, made once."""
    path = tmp / f"deposits-{deposits}-{prompts}.zarr"
    if path.exists():
        return path
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
                random.normal(size=(prompts, 100)).astype(np.float32),
                checkpoint=CheckpointId("drawn", step=step),
                query_set=queries.name,
                keep=keep,
            )
    bank.path.rename(path)
    return path
