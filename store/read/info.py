"""Contents of a bank: one line, and one row per deposit."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.notebook import abbreviated
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format import commits
from logitbank.store.format.commits import Committed
from logitbank.store.format.schema import INFO
from logitbank.store.heads.stored import head_sizes
from logitbank.store.steps import in_order
from logitbank.wording import counted


def bank_line(deposits: Sequence[Deposit], prompt_sets: Sequence[str]) -> str:
    """Models, checkpoints and prompts: "toy; 24 checkpoints, steps 0 to 720; prompts winobias"."""
    checkpoints = {d.checkpoint for d in deposits}
    models = sorted({c.model for c in checkpoints})
    steps = [step for step in in_order(c.step for c in checkpoints) if step is not None]
    span = f", steps {steps[0]} to {steps[-1]}" if steps else ""
    return (
        f"{abbreviated(models) if models else 'no model yet'};"
        f" {counted(len(checkpoints), 'checkpoint')}{span}; prompts {abbreviated(prompt_sets)}"
    )


def info(root: Path, deposits: Sequence[Deposit]) -> pl.DataFrame:
    """See `Bank.info`."""
    heads = head_sizes(root) if any(d.spec.heads for d in deposits) else {}
    rows = []
    for deposit in deposits:
        head_bytes = sum(heads.pop(digest, 0) for digest in deposit.spec.heads.values())
        *row, committed_bytes = deposit.read_committed(partial(_row, deposit))
        rows.append((*row, committed_bytes + head_bytes))
    return pl.DataFrame(rows, schema=INFO, orient="row")


def _row(deposit: Deposit, state: Committed) -> tuple[Any, ...]:
    checkpoint, layout = deposit.checkpoint, deposit.layout
    engine = deposit.spec.provenance.get("engine")
    committed = [commits.digests(deposit.path, name) for name in state.names]
    return (
        checkpoint.model,
        checkpoint.run,
        checkpoint.step,
        deposit.query_set,
        layout.queries,
        sum(len(layout.rows(block)) for block in state.blocks),
        layout.blocks,
        state.sealed,
        str(layout.keep),
        layout.dtype,
        None if engine is None else str(engine),
        sum(digest.bytes for part in committed for digest in part.values()),
    )
