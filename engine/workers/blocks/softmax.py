"""Log-softmax of rows on a CPU, in float64, and its rounding.

PyTorch rounds float64 to float16 through float32: one in 20,000 log-probabilities differs by one
float16 step from NumPy's rounding.
"""

from collections.abc import Iterator

import numpy as np
import torch

from logitbank.store.deposits.entries import Normalised
from logitbank.store.format.schema import Dtype

_SERIAL = 32_767
"""Numbers that PyTorch processes in one thread. With more, threads wait for each other in every
step, and for NumPy between the steps."""
_SMALLEST, _LARGEST = 2.0**-900, 2.0**1000
"""Between these, a sum of exponentials is not affected by the limits of float64."""


class Softmax:
    """Normalises batches of logits; the result of a row is valid until the next row."""

    def __init__(self, dtype: Dtype | None) -> None:
        """`dtype` is that of the log-probabilities; None computes only log-sum-exp."""
        self._dtype: torch.dtype | None = None if dtype is None else getattr(torch, dtype)
        self._exact = self._powers = torch.empty(0, dtype=torch.float64)
        self._stored = None if dtype is None else torch.empty(0, dtype=self._dtype)

    def rows(self, logits: torch.Tensor) -> Iterator[Normalised]:
        """The result of each row of (n, v) float32, in order."""
        return map(self._row, logits)

    def _row(self, row: torch.Tensor) -> Normalised:
        """One row, in memory that all rows share.

        For 50,304 numbers NumPy's exp takes 27 µs with AVX-512 and 130 without. The highest logit
        is only subtracted if the sum of exponentials exceeds float64, which needs logits of several
        hundred.
        """
        if len(self._exact) != len(row):
            self._exact = torch.empty(len(row), dtype=torch.float64)
            self._powers = torch.empty(min(len(row), _SERIAL), dtype=torch.float64)
            if self._dtype is not None:
                self._stored = torch.empty(len(row), dtype=self._dtype)
        parts = -(-len(row) // _SERIAL)
        exacts = self._exact.chunk(parts)
        total = 0.0
        for exact, logits in zip(exacts, row.chunk(parts), strict=True):
            powers = self._powers[: len(exact)]
            exact.copy_(logits)
            with np.errstate(over="ignore", invalid="ignore"):
                np.exp(exact.numpy(), out=powers.numpy())
            total += float(powers.sum())
        if _SMALLEST < total < _LARGEST:
            logsumexp = float(np.log(total))
        else:
            logsumexp = float(torch.logsumexp(self._exact, dim=0))
        if self._stored is None:
            return Normalised(logsumexp, None)
        for exact, stored in zip(exacts, self._stored.chunk(parts), strict=True):
            stored.copy_(exact.sub_(logsumexp))
        return Normalised(logsumexp, self._stored.numpy())
