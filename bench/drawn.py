"""Banks of as many checkpoints as wanted, whose logits are drawn and no model's."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl

from bench.models import DATA, series
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.plan.prepare import prepare
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.run import record_prompts
from logitbank.engine.suites.suites import resolve_suite
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    OptionTokens,
    OutputHead,
)
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.schema import SCORES_SCHEMA

STEPS = [0, *(2**k for k in range(10)), *range(1000, 144_000, 1000)]
"""Pythia's 154."""
WIDTH, LAYERS = 64, (0, 1, 2)
"""Of states that are kept."""
Block = Callable[[OptionTokens, Layout, int, int], BlockData]
"""The block of a layout at a step."""


def drawn_bank(
    path: Path,
    tmp: Path,
    prompts: Sequence[str | PromptSet],
    *,
    shape: str = "toy",
    keep: str = "options",
    steps: Sequence[int] = STEPS,
) -> Path:
    """A bank with a deposit of each prompt set, or known name of one, at each step, made once.

    At keep level `full` and `hidden` all steps have the same rows; what is kept of options is drawn
    for each.
    """
    if path.exists():
        return path
    part = path.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    bank = Bank.create(part)
    with patch.object(os, "fsync", lambda _: None):  # thousands of them; what is timed is reading
        for name in prompts:
            _deposit(bank, tmp, name, shape, Keep(keep), steps)  # type: ignore[arg-type]
    part.rename(path)
    return path


def only_first(bank: Path, steps: Sequence[int]) -> Path:
    """The same bank with these steps alone, made once; its files are the same ones."""
    path = bank.with_name(f"{bank.stem}-{len(steps)}.zarr")
    kept = {str(step) for step in steps}

    def others(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name.isdecimal() and Path(folder).name == "main"} - kept

    if not path.exists():
        shutil.copytree(bank, path, copy_function=os.link, ignore=others)
    return path


def _deposit(
    bank: Bank,
    tmp: Path,
    prompts: str | PromptSet,
    shape: str,
    keep: Keep,
    steps: Sequence[int],
) -> None:
    folder = series(tmp, shape, 1)
    engine = "transformers" if shape.startswith("bert") else "vllm"
    asked = prompts if isinstance(prompts, PromptSet) else prompt_set(prompts, data=DATA)
    extraction = Extraction(
        *(resolve_suite(str(folder)), (asked,), EngineSettings(engine)),
        keep=Keep("options"),
    )
    prepared = prepare(None, extraction, folder / "step0")
    record_prompts(bank, prepared)
    (plan,) = prepared.plan.deposits
    named = bank.option_tokens(plan.query_set)
    layout, heads, block_of = _kept(bank, plan, keep)
    for step in steps:
        spec = DepositSpec(
            CheckpointId("pythia", step=step), plan.query_set, layout, prepared.tokenizer.entries,
            {"engine": "drawn"}, heads,
        )  # fmt: skip
        with bank.begin(spec) as writer:
            for block in range(layout.blocks):
                writer.write(block, block_of(named, layout, block, step))
            writer.seal()


def _kept(bank: Bank, plan: DepositPlan, keep: Keep) -> tuple[Layout, dict[str, str], Block]:
    if keep.level == "options":
        return plan.layout, {}, drawn
    hidden = keep.level == "hidden"
    sizes = {"width": WIDTH, "layers": LAYERS} if hidden else {}
    layout = Layout.plan(
        queries=plan.layout.queries, vocab=plan.layout.vocab, dtype="float16", keep=keep, **sizes
    )  # type: ignore[arg-type]
    draw = np.random.default_rng(0)
    head = OutputHead(draw.normal(0, 0.3, (layout.vocab, WIDTH)).astype(np.float16), "float16")
    blocks: dict[int, BlockData] = {}

    def rows(named: OptionTokens, layout: Layout, block: int, step: int) -> BlockData:
        if block not in blocks:
            blocks[block] = _rows(named, layout, block, head)
        return blocks[block]

    return layout, {"next_token": bank.put_head(head)} if hidden else {}, rows


def _rows(named: OptionTokens, layout: Layout, block: int, head: OutputHead) -> BlockData:
    """Whole rows, or states and those of layers."""
    of_block = layout.rows(block)
    draw = np.random.default_rng(block)
    reducer = BlockReducer(layout, block, options=named, vocab_entries=layout.vocab)
    states = draw.normal(size=(len(of_block), WIDTH)).astype(np.float32)
    of_layers = draw.normal(size=(len(of_block), len(layout.layers), WIDTH)).astype(np.float32)
    reducer.put_states(range(len(of_block)), states, of_layers if layout.layers else None)
    for at, logits in enumerate(head.logits(states)):
        reducer.put(at, logits)
    return reducer.finish()


def drawn(named: OptionTokens, layout: Layout, block: int, step: int) -> BlockData:
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
