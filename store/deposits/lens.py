"""What a head says of the states of a layer: a logit lens on what a deposit keeps."""

from collections.abc import Sequence

import numpy as np

from logitbank.errors import KeepLevelError, UsageError
from logitbank.store.deposits.kept import KeptRows
from logitbank.store.deposits.normalised import normalised
from logitbank.store.format.numbers import logsumexp

_TOGETHER = 128
"""Rows that are multiplied by the tokens of all of them at once: those of one inner chunk."""


def lens_logprobs(
    kept: KeptRows, layer: int, rows: np.ndarray | None, tokens: np.ndarray | None
) -> np.ndarray:
    """Log-probabilities (q, t) float32 of rows (q,) at tokens (t,) after a layer; None is all."""
    head, columns = kept.head().whole(), _columns(kept, layer)
    if rows is None:
        rows = np.arange(kept.layout.queries)

    def logits(some: np.ndarray) -> np.ndarray:
        return head.logits(kept.read(some, array="layers", columns=columns, dtype=np.float32))

    return normalised(logits, rows, tokens, vocab=kept.layout.vocab)


def lens_at(
    kept: KeptRows, layers: Sequence[int], rows: np.ndarray, tokens: np.ndarray, *, normalised: bool
) -> np.ndarray:
    """Of pairs of a row (n,) and a token (n,) the logits (l, n) after layers (l,), float64.

    Where they are `normalised` they are log-probabilities, of whole rows. Else no other output of
    the head is worked out than those of tokens that stand with rows nearby.
    """
    out = np.empty((len(layers), len(rows)))
    if not out.size:
        return out
    head, columns = kept.head(), np.concatenate([_columns(kept, layer) for layer in layers])
    numbers, at = np.unique(tokens, return_inverse=True)
    part = head.whole() if normalised else head.part(numbers)
    order = np.argsort(rows, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(rows[order] // _TOGETHER)) + 1):
        distinct, row = np.unique(rows[places], return_inverse=True)
        # All layers of a row lie in one inner chunk, or in few: they are decoded once.
        beside = kept.read(distinct, array="layers", columns=columns, dtype=np.float32)
        states = beside.reshape(len(distinct), len(layers), -1)
        if normalised:
            for at_layer, values in enumerate(out):
                whole = part.logits(np.ascontiguousarray(states[:, at_layer]))
                values[places] = whole[row, tokens[places]] - _logsumexp(whole)[row]
        else:
            listed, column = np.unique(at[places], return_inverse=True)
            products = part.logits(states.reshape(-1, states.shape[2]), listed)
            products = products.reshape(*states.shape[:2], len(listed))
            out[:, places] = products[row, :, column].T
    return out


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    """Of each row (q, v), in float64 and one row after the other."""
    sums = (logsumexp(row.astype(np.float64)) for row in logits)
    return np.fromiter(sums, np.float64, len(logits))


def _columns(kept: KeptRows, layer: int) -> np.ndarray:
    """Where a layer is in the array of layers."""
    return np.array(kept.layout.columns_of(layer))


def require_layer(kept: KeptRows, layer: int, deposit: object) -> None:
    """Refuse a layer that is not kept; names the deposit.

    Raises
    ------
    KeepLevelError
        No layers are kept.
    UsageError
        Others are.
    """
    layers = kept.layout.layers
    if not layers:
        raise KeepLevelError(
            f"{deposit} keeps no states of layers; extract again with --keep hidden --layers all"
            " into another bank"
        )
    if layer not in layers:
        listed = ", ".join(map(str, layers))
        raise UsageError(f"{deposit} keeps no layer {layer!r}; it has {listed}")
