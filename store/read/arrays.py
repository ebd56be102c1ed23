"""Deposit logits that were computed elsewhere and are in one array."""

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from logitbank.errors import UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.format.attributes import ARRAY
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import CheckpointId, Dtype, Json, Keep, OptionTokens

DTYPES = ("float16", "float32", "float64")


def deposit_array(
    logits: np.ndarray,
    begin: Callable[[DepositSpec], DepositWriter],
    *,
    queries: QuerySet,
    options: OptionTokens,
    checkpoint: CheckpointId,
    query_set: str,
    keep: Keep,
    dtype: Dtype,
    vocab_entries: int | None,
    provenance: Mapping[str, Json],
) -> Deposit:
    """See `Bank.deposit`."""
    _check_array(logits, queries=len(queries))
    vocab = logits.shape[1]
    entries = vocab if vocab_entries is None else vocab_entries
    layout = Layout.plan(queries=len(queries), vocab=vocab, dtype=dtype, keep=keep)
    if len(options.tokens) and options.tokens.max() >= vocab:
        raise UsageError(
            f"prompts name token {options.tokens.max()}, but logits have {vocab} columns;"
            " give one column per output of the head"
        )
    made = {"engine": "arrays", "tokenizer": queries.tokenizer, **provenance}
    if made.get("weights") is None:  # with nothing to compare, any other array would pass for this
        made[ARRAY] = _digest(logits, layout)
    with begin(DepositSpec(checkpoint, query_set, layout, entries, made)) as writer:
        for block in writer.missing():
            reducer = BlockReducer(writer.layout, block, options=options, vocab_entries=entries)
            for i, values in enumerate(_float32_rows(logits, writer.layout.rows(block))):
                reducer.put(i, values)
            writer.write(block, reducer.finish())
        writer.seal()
    return writer.deposit


def _check_array(logits: np.ndarray, *, queries: int) -> None:
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
