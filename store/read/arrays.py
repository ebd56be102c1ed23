"""Deposit logits in one array that was computed elsewhere."""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from logitbank.errors import UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.format.attributes import ARRAY
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.schema import OptionTokens

DTYPES = ("float16", "float32", "float64")


def deposit_array(
    logits: np.ndarray,
    spec: DepositSpec,
    begin: Callable[[DepositSpec], DepositWriter],
    options: OptionTokens,
) -> Deposit:
    """Write logits that `check_array` accepted, and seal; see `Bank.deposit`."""
    if len(options.tokens) and options.tokens.max() >= spec.layout.vocab:
        raise UsageError(
            f"prompts name token {options.tokens.max()}, but logits have {spec.layout.vocab}"
            " columns; give one column per output of the head"
        )
    if spec.provenance.get("weights") is None:  # with nothing to compare, any array would pass
        digest = _digest(logits, spec.layout)
        spec = replace(spec, provenance={**spec.provenance, ARRAY: digest})
    with begin(spec) as writer:
        for block in writer.missing():
            reducer = BlockReducer(
                writer.layout, block, options=options, vocab_entries=spec.vocab_entries
            )
            for i, values in enumerate(_float32_rows(logits, writer.layout.rows(block))):
                reducer.put(i, values)
            writer.write(block, reducer.finish())
        writer.seal()
    return writer.deposit


def check_array(logits: np.ndarray, *, queries: int) -> None:
    """Refuse an array that is not one row of logits per query."""
    if logits.ndim != 2 or len(logits) != queries or not logits.shape[1]:
        raise UsageError(
            f"logits must have shape ({queries}, vocabulary), one row per query; got {logits.shape}"
        )
    if logits.dtype.name not in DTYPES:
        raise UsageError(f"logits are {logits.dtype}; convert them to one of {', '.join(DTYPES)}")


def _digest(logits: np.ndarray, layout: Layout) -> str:
    """SHA-256 (hex) of the logits as a float32 tensor, by the recipe for tensors of weights."""
    digest = hashlib.sha256(f"float32 {list(logits.shape)}\n".encode())
    for block in range(layout.blocks):
        values = _float32_rows(logits, layout.rows(block))
        digest.update(np.ascontiguousarray(values, "<f4").data)
    return digest.hexdigest()


def _float32_rows(logits: np.ndarray, rows: range) -> np.ndarray:
    with np.errstate(over="ignore"):  # becomes infinite, which is refused below
        values = logits[rows.start : rows.stop].astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        count = int(np.count_nonzero(~np.isfinite(values[bad[0]])))
        raise UsageError(
            f"query row {rows[int(bad[0])]}: {count} of {values.shape[1]} logits are not finite in"
            " float32; check the model"
        )
    return values
