"""The checkpoints of one query set as one lazy xarray dataset; the only file with xarray."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logitbank.errors import BankError, MissingExtraError, UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.schema import CheckpointId

if TYPE_CHECKING:
    import xarray

RELEASE = -1


def xarray_view(deposits: Sequence[Deposit], name: str) -> "xarray.Dataset":
    """See `Bank.to_xarray`."""
    try:
        import xarray
    except ImportError as error:
        raise MissingExtraError(
            "to_xarray needs xarray; install it with `pip install 'logitbank[xarray]'`"
        ) from error
    full = sorted(
        (d for d in deposits if d.layout.keep.whole_rows), key=lambda d: _order(d.checkpoint)
    )
    if not full:
        raise BankError(
            f"no deposit of {name} keeps full rows; run `logitbank extract` with --keep full, or"
            " use scan"
        )
    query_sets = sorted({d.query_set for d in full})
    if len(query_sets) > 1:  # of several tokenizers, or heads: other queries in each row
        raise UsageError(
            f"{name} is asked in {len(query_sets)} query sets; name one of {', '.join(query_sets)}"
        )
    for deposit in full:
        deposit.check_sizes()
    checkpoints = [d.checkpoint for d in full]
    with_rows = set(checkpoints)
    without = dict.fromkeys(str(d.checkpoint) for d in deposits if d.checkpoint not in with_rows)
    seeds = [np.nan if c.run_seed is None else c.run_seed for c in checkpoints]
    return xarray.Dataset(
        {
            "logprobs": (("checkpoint", "query", "token"), _lazy(full)),
            "logsumexp": (("checkpoint", "query"), np.stack([_logsumexp(d) for d in full])),
        },
        coords={
            "model": ("checkpoint", [c.model for c in checkpoints]),
            "run": ("checkpoint", [c.run for c in checkpoints]),
            "run_seed": ("checkpoint", seeds),
            "step": ("checkpoint", [RELEASE if c.step is None else c.step for c in checkpoints]),
        },
        attrs={"query_set": query_sets[0], "units": "nats", "without_full_rows": [*without]},
    ).set_index(checkpoint=["model", "run", "step"])


def _order(checkpoint: CheckpointId) -> tuple[str, str, int]:
    return checkpoint.model, checkpoint.run, RELEASE if checkpoint.step is None else checkpoint.step


def _logsumexp(deposit: Deposit) -> np.ndarray:
    """(q,) float64, NaN where not committed."""
    if deposit.complete:
        return deposit.logsumexp()
    rows = np.flatnonzero(deposit.committed_rows())
    values = deposit.logsumexp(rows)
    out = np.full(deposit.layout.queries, np.nan)
    out[rows] = values
    return out


def _lazy(deposits: Sequence[Deposit]) -> Any:
    """An array (c, q, v) that reads indexed values only."""
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class SideBySide(BackendArray):  # type: ignore[misc]
        def __init__(self) -> None:
            queries = deposits[0].layout.queries
            vocab = max(d.layout.vocab for d in deposits)
            self.shape = (len(deposits), queries, vocab)
            self.dtype = np.dtype(np.float32)

        def __getitem__(self, key: Any) -> Any:
            support = indexing.IndexingSupport.OUTER
            return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

        def _read(self, key: tuple[Any, ...]) -> np.ndarray:
            index = [np.arange(n)[k] for n, k in zip(self.shape, key, strict=True)]
            which, rows, tokens = (np.atleast_1d(i) for i in index)
            values = np.stack([_read_rows(deposits[c], rows, tokens) for c in which])
            kept = tuple(slice(None) if np.ndim(i) else 0 for i in index)
            return np.asarray(values[kept])

    return indexing.LazilyIndexedArray(SideBySide())


def _read_rows(deposit: Deposit, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """(q, v) float32; NaN for rows that are not committed, and for missing outputs."""
    out = np.full((len(rows), len(tokens)), np.nan, np.float32)
    here = deposit.committed_rows()[rows]
    has = tokens < deposit.layout.vocab
    if here.any() and has.any():
        out[np.ix_(here, has)] = deposit.logprobs(rows[here], tokens[has])
    return out
