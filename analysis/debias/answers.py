"""Answers to instances through a filter, their bias, and what rounding does to it."""

from typing import NamedTuple

import numpy as np

from logitbank.analysis.debias.instances import QUESTIONS, Instances
from logitbank.store.filter.filters import Filter


class Answers(NamedTuple):
    """What a filter makes of instances."""

    shares: np.ndarray
    """(k, 4 n): q, a column for each question."""
    scale: np.ndarray | float
    """(n, 4, 1): what q is multiplied by."""
    at: np.ndarray
    """(n, 4, 2): index, in the flat shares, of the likeliest form of a subject."""
    share: np.ndarray
    """(n, 4, 2): its q; 0 where the filter does not move the subject."""
    probabilities: np.ndarray
    """(n, 4, 2): P(x | question). For subjects outside the k, 0 or what they had, by the mode."""
    rounding: float
    """Bound of the relative error of a probability, as `relative_rounding` gives it."""

    @property
    def bias(self) -> np.ndarray:
        """C (n,), 0 where it is no more than rounding."""
        return bias(self.probabilities, rounding=self.rounding)


def answers(given: Instances, by: Filter | None) -> Answers:
    """Probabilities of the subjects after a filter; None is no filter."""
    by = Filter.identity(given.k) if by is None else by
    shares = by.shares(given.columns)
    flat, ((at, inside), *others) = shares.ravel(), given.places
    share, rounding = flat.take(at) * inside, relative_rounding(given, by)
    for other, places in others:  # few: most subjects have one form among the k
        likelier = flat.take(other) * places
        at = np.where(likelier > share, other, at)
        share = np.maximum(share, likelier)
    if by.mode == "truncate":
        return Answers(shares, 1.0, at, share, share, rounding)
    probabilities = share * given.mass
    share = share * (probabilities >= given.rest)
    kept = np.maximum(probabilities, given.rest)
    return Answers(shares, given.mass, at, share, kept, rounding)


def relative_rounding(given: Instances, by: Filter) -> float:
    """How far rounding can move a probability after a filter, relative to it.

    With the unit u = ε/2, a score W ℓ + b is a sum of k + 1 terms and off by at most (k + 1) u S,
    where S = max Σ|W| max|ℓ| + max|b|. Two scores and their difference make a share's exponent, so
    2 (k + 2) u S, and the softmax doubles that; exponential, sum and quotient add about
    (k + 8) u. All of it is within 2 (k + 8) ε (1 + S), and stays so by a factor of 10 and more in
    what was measured. It matters where W is all ones: every score of a question is the same sum
    then, and which of them differ in the last bit depends on the processor's order of adding.
    """
    scores = float(np.abs(by.weight).sum(axis=1).max() * given.largest + np.abs(by.bias).max())
    return 2 * (by.k + 8) * float(np.finfo(np.float64).eps) * (1 + scores)


SIGNS = np.array([1.0, 1.0, -1.0, -1.0])


_SUM = 8 * float(np.finfo(np.float64).eps)
"""Relative rounding of a sum of eight probabilities."""


def bias(probabilities: np.ndarray, *, rounding: float = 0.0) -> np.ndarray:
    """C (n,) of METRICS' joint comparison: ¼ Σ ± (P(x1) − P(x2)) over the four questions.

    Where the eight probabilities cancel, up to their relative `rounding` and that of their sum, C
    is 0: what is left has a size and a sign that mean nothing.
    """
    c = (probabilities[:, :, 0] - probabilities[:, :, 1]) @ SIGNS / 4
    total = probabilities.reshape(len(c), -1) @ np.ones(2 * QUESTIONS)
    return np.where(np.abs(c) <= (rounding + _SUM) * total / 4, 0.0, c)
