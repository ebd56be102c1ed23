"""What a filter is trained on, as arrays."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import polars as pl

QUESTIONS = 4
"""τ12(a), τ21(a), τ12(ā), τ21(ā): by order of mention, then by negation."""
OUTSIDE = -1
"""Where a form is not among the k highest."""


@dataclass(frozen=True)
class Instances:
    """n instances, each of four questions about two subjects."""

    logits: np.ndarray
    """(n, 4, k) float64, best first."""
    log_mass: np.ndarray
    """(n, 4): ln of what the k tokens have of the whole row."""
    slots: np.ndarray
    """(n, 4, 2, forms) int16: places among the k of each subject's surface forms, −1 for none."""
    rest: np.ndarray
    """(n, 4, 2): greatest probability of a subject's forms outside the k; 0 without any."""
    names: pl.DataFrame
    """n rows: the prompt set's own columns that all four questions share."""
    missing: int = 0
    """Instances of the prompt set, or of its part, that the model was asked and has no score of."""

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def k(self) -> int:
        return int(self.logits.shape[2])

    @cached_property
    def columns(self) -> np.ndarray:
        """The logits as (k, 4 n): a column for each question."""
        return np.ascontiguousarray(self.logits.reshape(-1, self.k).T)

    @cached_property
    def mass(self) -> np.ndarray:
        """(n, 4, 1): what the k tokens have of the whole row."""
        return np.asarray(np.exp(self.log_mass)[:, :, None])

    @cached_property
    def places(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each form, where it is in flat columns, and 1 or, where it is outside, 0."""
        number = QUESTIONS * len(self)
        column = np.arange(number).reshape(-1, QUESTIONS, 1)
        forms = [self.slots[..., form].astype(np.int64) for form in range(self.slots.shape[3])]
        return [(np.maximum(f, 0) * number + column, (f >= 0).astype(np.float64)) for f in forms]

    @cached_property
    def largest(self) -> float:
        """The greatest size of a logit, which the rounding of a filter's scores grows with."""
        return float(np.abs(self.logits[:, :, [0, -1]]).max(initial=0.0))  # they are sorted

    @property
    def coverage(self) -> float:
        """Share of subject slots with a form among the k: a filter cannot move the others."""
        return float((self.slots >= 0).any(axis=3).mean())

    def take(self, index: np.ndarray) -> Self:
        """Some of them, in this order, repeats included."""
        return type(self)(
            self.logits[index],
            self.log_mass[index],
            self.slots[index],
            self.rest[index],
            self.names[index],
            self.missing,
        )

    def narrowed(self, k: int) -> Self:
        """As if only the `k` highest logits were known."""
        logits, inside = self.logits[:, :, :k], (self.slots >= 0) & (self.slots < k)
        row = logsumexp(self.logits) - self.log_mass
        cut = np.where((self.slots >= k), self.slots, 0).astype(np.int64)
        logit = np.take_along_axis(self.logits[:, :, None, :], cut, axis=3)
        p = np.where(self.slots >= k, np.exp(logit - row[:, :, None, None]), 0.0).max(axis=3)
        return type(self)(
            logits,
            logsumexp(logits) - row,
            trimmed(np.where(inside, self.slots, OUTSIDE)),
            np.maximum(self.rest, p),
            self.names,
            self.missing,
        )


def trimmed(slots: np.ndarray) -> np.ndarray:
    """Forms among the k first, and no more columns than they need."""
    slots = -np.sort(-slots, axis=3)
    return slots[..., : max(1, int((slots >= 0).sum(axis=3).max()))].astype(np.int16)


def logsumexp(logits: np.ndarray) -> np.ndarray:
    highest = logits[..., :1]
    return np.asarray(highest[..., 0] + np.log(np.exp(logits - highest).sum(axis=-1)))
