"""All checkpoints of one query set as one lazy xarray dataset."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logitbank.errors import BankError, MissingExtraError, UsageError
from logitbank.store.deposits.deposit import Deposit

if TYPE_CHECKING:
    import xarray

RELEASE = -1


def xarray_view(deposits: Sequence[Deposit], name: str) -> "xarray.Dataset":
    """See `Bank.to_xarray`."""
    try:
        import xarray
    except ImportError as error:
        raise MissingExtraError(
            "to_xarray needs xarray. Fix: pip install 'logitbank[xarray]'"
        ) from error
    full = [d for d in deposits if d.layout.keep.has_full_rows and d.complete]
    full.sort(key=lambda d: (d.checkpoint.model, d.checkpoint.run, _step(d)))
    if not full:
        raise BankError(
            f"No complete deposit of {name} keeps full rows. Extract with --keep full, or use scan."
        )
    query_sets = sorted({d.query_set for d in full})
    if len(query_sets) > 1:  # several tokenizers or heads: rows are other queries
        raise UsageError(
            f"{name} has {len(query_sets)} query sets. Name one of {', '.join(query_sets)}."
        )
    for deposit in full:
        deposit.logprobs([0], [0])  # refuses false sizes before arrays of them are allocated
    checkpoints = [d.checkpoint for d in full]
    excluded = {str(d.checkpoint): None for d in deposits if d.checkpoint not in checkpoints}
    seeds = [np.nan if c.run_seed is None else c.run_seed for c in checkpoints]
    return xarray.Dataset(
        {
            "logsumexp": (("checkpoint", "query"), np.stack([d.logsumexp() for d in full])),
            "logprobs": (("checkpoint", "query", "token"), _lazy(full)),
        },
        coords={
            "model": ("checkpoint", [c.model for c in checkpoints]),
            "run": ("checkpoint", [c.run for c in checkpoints]),
            "run_seed": ("checkpoint", seeds),
            "step": ("checkpoint", [_step(d) for d in full]),
        },
        attrs={"query_set": query_sets[0], "units": "nats", "without_full_rows": [*excluded]},
    ).set_index(checkpoint=["model", "run", "step"])


def _step(deposit: Deposit) -> int:
    return RELEASE if deposit.checkpoint.step is None else deposit.checkpoint.step


def _lazy(deposits: Sequence[Deposit]) -> Any:
    """An array (c, q, v) that reads indexed values only."""
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class LogprobArray(BackendArray):  # type: ignore[misc]
        def __init__(self) -> None:
            vocab = max(d.layout.vocab for d in deposits)
            self.shape = (len(deposits), deposits[0].layout.queries, vocab)
            self.dtype = np.dtype(np.float32)

        def __getitem__(self, key: Any) -> Any:
            support = indexing.IndexingSupport.OUTER
            return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

        def _read(self, key: tuple[Any, ...]) -> np.ndarray:
            index = [np.arange(n)[k] for n, k in zip(self.shape, key, strict=True)]
            numbers, rows, tokens = (np.atleast_1d(i) for i in index)
            values = np.stack([_read_rows(deposits[number], rows, tokens) for number in numbers])
            kept = tuple(slice(None) if np.ndim(i) else 0 for i in index)
            return np.asarray(values[kept])

    return indexing.LazilyIndexedArray(LogprobArray())


def _read_rows(deposit: Deposit, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """(q, v) float32; NaN for outputs that a smaller model does not have."""
    present = tokens < deposit.layout.vocab
    values = deposit.logprobs(rows, tokens[present])
    if present.all():
        return values
    out = np.full((len(rows), len(tokens)), np.nan, np.float32)
    out[:, present] = values
    return out
