"""Provenance of a bank's deposits as a table."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import polars as pl

from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.format.schema import Json
from logitbank.store.read.copied_weights import MATRICES

_ROWS = pl.Schema(
    {
        "model": pl.String,
        "run": pl.String,
        "field": pl.String,  # with dots for nested objects: source.revision
        "value": pl.String,  # text, or any other value as JSON
        "step": pl.Int64,  # null for a release
    }
)


def provenance_table(deposits: Iterable[Deposit]) -> pl.DataFrame:
    """How deposits were made, with equal values in one row; `info --provenance` prints it.

    Returns
    -------
    One row per model, run, field and value: columns model, run, field (`engine`,
    `source.revision`, …), value (text; anything else as JSON), deposits (number), first_step,
    last_step.
    """
    rows = [
        (d.checkpoint.model, d.checkpoint.run, field, value, d.checkpoint.step)
        for d in deposits
        for field, value in _fields(d)
    ]
    table = pl.DataFrame(rows, schema=_ROWS, orient="row")
    step = pl.col("step")
    return table.group_by("model", "run", "field", "value", maintain_order=True).agg(
        deposits=pl.len().cast(pl.Int64), first_step=step.min(), last_step=step.max()
    )


def _fields(deposit: Deposit) -> Iterator[tuple[str, str]]:
    provenance = deposit.spec.provenance
    yield from _flat({name: value for name, value in provenance.items() if name != MATRICES})


def _flat(fields: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def commits_digest(root: Path, deposits: Iterable[Deposit]) -> str:
    """SHA-256 of the lines that `sha256sum` prints for all commits, in the order of their paths."""
    files = sorted(
        f"{(deposit.path / 'commits').relative_to(root).as_posix()}/{name}.json"
        for deposit in deposits
        for name in deposit.state().names
    )
    lines = (f"{objects.digest(root / file).sha256}  {file}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
