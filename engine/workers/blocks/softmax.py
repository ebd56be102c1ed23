"""The softmax of rows on a CPU: in float64, rounded when it is done.

PyTorch rounds to float16 by way of float32: one in 20,000 log-probabilities is a float16 step from
what NumPy rounds at once.
"""

from collections.abc import Iterator

import numpy as np
import torch

from logitbank.store.deposits.entries import Normalised
from logitbank.store.format.schema import Dtype

_FEW = 4
"""Rows that threads share: float64 copies of them, of 50,304 values each, stay in their caches."""
_SERIAL = 32_767
"""So many numbers PyTorch works on in one thread; with more, threads wait for each other in every
step, and for NumPy between the steps."""
_FAST = torch.backends.cpu.get_cpu_capability() == "AVX512"
_SMALLEST, _LARGEST = 2.0**-900, 2.0**1000
"""Between them a sum of powers has lost nothing to the ends of float64."""


class Softmax:
    """Takes batches of logits; what it gives of a row holds until the next is taken."""

    def __init__(self, dtype: Dtype | None) -> None:
        """`dtype` is that of the log-probabilities; None where only log-sum-exp is wanted."""
        self._dtype: torch.dtype | None = None if dtype is None else getattr(torch, dtype)
        self._exact = self._powers = torch.empty(0, dtype=torch.float64)
        self._stored = None if dtype is None else torch.empty(0, dtype=self._dtype)

    def rows(self, logits: torch.Tensor) -> Iterator[Normalised]:
        """Of each row of (n, v) float32, one after the other."""
        if _FAST and torch.get_num_threads() <= 2:
            return map(self._alone, logits)
        return self._together(logits)

    def _together(self, logits: torch.Tensor) -> Iterator[Normalised]:
        """A few rows at a time, so that there is work for several threads."""
        for start in range(0, len(logits), _FEW):
            few = logits[start : start + _FEW]
            exact = few.double()
            logsumexp = torch.logsumexp(exact, dim=1)
            if self._dtype is None:
                stored: Iterator[np.ndarray | None] = iter([None] * len(few))
            else:
                stored = iter(exact.sub_(logsumexp[:, None]).to(self._dtype).numpy())
            yield from map(Normalised, logsumexp.tolist(), stored)

    def _alone(self, row: torch.Tensor) -> Normalised:
        """One row, in the same memory as all others.

        NumPy's exp takes 27 µs of 50,304 numbers where there is AVX-512, and PyTorch's 69; where
        there is none NumPy's takes 130. The highest logit needs no subtracting where the sum of
        powers lies within float64, as in every model but those with logits of hundreds.
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
