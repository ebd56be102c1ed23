"""Deposit of logits in one array."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from logitbank.errors import UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.format.attributes import ARRAY
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.tables import prompt_tables

DTYPES = ("float16", "float32", "float64")


def deposit_array(
    root: Path,
    logits: np.ndarray,
    spec: DepositSpec,
    begin: Callable[[DepositSpec], DepositWriter],
) -> Deposit:
    """Write logits that `check_array` accepted, and seal; see `Bank.deposit`."""
    options = prompt_tables.option_tokens(root, spec.query_set)
    if len(options.tokens) and options.tokens.max() >= spec.layout.vocab:
        raise UsageError(
            f"Prompts name token {options.tokens.max()}, but logits have {spec.layout.vocab}"
            " columns. Pass one column per output of the head."
        )
    if spec.provenance.get("weights") is None:  # otherwise any array would match the deposit
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


def as_array(logits: object) -> np.ndarray:
    """An array, or the values of a tensor of torch or another library, as an array; UsageError."""
    if isinstance(logits, np.ndarray):
        return logits
    try:
        detached = logits.detach().cpu() if hasattr(logits, "detach") else logits
        array = np.asarray(detached)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Logits are no array ({error}). Convert them to numpy.float32."
        ) from error
    if array.dtype.name not in DTYPES:
        raise UsageError(f"Logits are {array.dtype}. Convert them to {', '.join(DTYPES)}.")
    return array


def check_array(logits: np.ndarray, *, queries: int) -> None:
    """Refuse an array that is not one row of logits per query."""
    if logits.ndim != 2 or len(logits) != queries or not logits.shape[1]:
        raise UsageError(
            f"Logits have shape {logits.shape}; it must be ({queries}, vocabulary), one row per"
            " query."
        )
    if logits.dtype.name not in DTYPES:
        raise UsageError(f"Logits are {logits.dtype}. Convert them to {', '.join(DTYPES)}.")


def _digest(logits: np.ndarray, layout: Layout) -> str:
    """SHA-256 (hex) of the logits as a float32 tensor, by the recipe for tensors of weights."""
    digest = hashlib.sha256(f"float32 {list(logits.shape)}\n".encode())
    for block in range(layout.blocks):
        values = _float32_rows(logits, layout.rows(block))
        digest.update(np.ascontiguousarray(values, "<f4").data)
    return digest.hexdigest()


def _float32_rows(logits: np.ndarray, rows: range) -> np.ndarray:
    with np.errstate(over="ignore"):  # infinite values are refused below
        values = logits[rows.start : rows.stop].astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        count = int(np.count_nonzero(~np.isfinite(values[bad[0]])))
        raise UsageError(
            f"Query row {rows[int(bad[0])]}: {count} of {values.shape[1]} logits are not finite in"
            " float32. Check the model."
        )
    return values
