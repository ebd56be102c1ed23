"""Answers to instances through a filter: bias, UnQover's measures, and a loss with gradient.

Both objectives have a kink at which a C, or a distance between two instances, is 0. The gradient
there is the subgradient 0, and "is 0" means: no more than rounding. Without that bound the sign of
the last bit decides, and training goes another way on another processor. All weights 1 is such a
start: an instance whose subjects have the same ranks in all four questions is answered alike in all
of them, and has C = 0. It has no gradient until other instances, whose ranks differ, move the
filter; `train` refuses a start without any.

Source: Qureshi et al. 2024; the objective `direct` is not in the paper.
"""

from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.debias.instances import QUESTIONS, Instances
from logitbank.analysis.families.unqover.tables import (
    grid_of,
    model_level,
    subject_attribute_cells,
)
from logitbank.store.filter.filters import Filter

Objective = Literal["published", "direct"]
"""`published`: L = −(1/B) Σ r ln f with the reward r = −|C| held constant. `direct`: mean |C|."""
FLOOR = 1e-12
MEASURES = ("mu", "eta", "abs_c", "positional", "attributive")
SIGNS = np.array([1.0, 1.0, -1.0, -1.0])
_SUM = 8 * float(np.finfo(np.float64).eps)
"""Relative rounding of a sum of eight probabilities."""


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


def bias(probabilities: np.ndarray, *, rounding: float = 0.0) -> np.ndarray:
    """C (n,) of METRICS' joint comparison: ¼ Σ ± (P(x1) − P(x2)) over the four questions.

    Where the eight probabilities cancel, up to their relative `rounding` and that of their sum, C
    is 0: what is left has a size and a sign that mean nothing.
    """
    c = (probabilities[:, :, 0] - probabilities[:, :, 1]) @ SIGNS / 4
    total = probabilities.reshape(len(c), -1) @ np.ones(2 * QUESTIONS)
    return np.where(np.abs(c) <= (rounding + _SUM) * total / 4, 0.0, c)


def measured(given: Instances, by: Filter | None, *, bootstrap: int = 0) -> dict[str, float]:
    """Bias intensity μ and η, mean |C|, positional and attributive error, and the coverage.

    `bootstrap` > 0 adds `_low` and `_high` of each; see `model_level` for what is resampled.
    """
    answered = answers(given, by)
    return measured_probabilities(
        given, answered.probabilities, bootstrap=bootstrap, rounding=answered.rounding
    )


def measured_probabilities(
    given: Instances, probabilities: np.ndarray, *, bootstrap: int = 0, rounding: float = 0.0
) -> dict[str, float]:
    """As `measured`, of probabilities (n, 4, 2) that came about in another way."""
    frame = with_errors(given.names, probabilities, rounding=rounding)
    values = model_level(frame, grid_of(subject_attribute_cells(frame)), bootstrap)
    row: dict[str, float] = {}
    for name in MEASURES:
        value, low, high = values[name]
        row |= {name: value}
        row |= {f"{name}_low": low, f"{name}_high": high} if bootstrap else {}
    return {**row, "coverage": given.coverage, "instances": len(given)}


def with_errors(
    names: pl.DataFrame, probabilities: np.ndarray, *, rounding: float = 0.0
) -> pl.DataFrame:
    """Instances with `c`, `positional` and `attributive`, as `unqover_instances` has them.

    A C within the relative `rounding` of the probabilities is 0, so that η has no sign of noise.
    """
    p = probabilities
    orders = np.abs(p[:, [0, 2]] - p[:, [1, 3]])
    attributes = np.abs(p[:, :2] - p[:, 2:, ::-1])
    return names.with_columns(
        c=bias(p, rounding=rounding),
        positional=orders.mean(axis=(1, 2)),
        attributive=attributes.mean(axis=(1, 2)),
    )


class Loss(NamedTuple):
    """A batch's loss, and its derivatives."""

    value: float
    weight: np.ndarray
    """(k, k)."""
    bias: np.ndarray
    """(k,)."""


def loss(given: Instances, by: Filter, objective: Objective) -> Loss:
    """The objective over a batch, and its gradient in the filter's parameters."""
    answered = answers(given, by)
    value, slope = (_direct if objective == "direct" else _published)(answered)
    return Loss(value, *_through(slope, given, answered))


def _direct(answered: Answers) -> tuple[float, np.ndarray]:
    c = answered.bias
    slope = (np.sign(c) / (4 * len(c)))[:, None, None] * SIGNS[None, :, None]
    return float(np.abs(c).mean()), slope * np.array([1.0, -1.0])


def _published(answered: Answers) -> tuple[float, np.ndarray]:
    probabilities, number = answered.probabilities, len(answered.probabilities)
    reward = -np.abs(answered.bias)
    sums = probabilities.sum(axis=1, keepdims=True)
    norms = np.maximum(sums, FLOOR)
    a = probabilities / norms
    apart = a[:, None] - a[None, :]
    # Both are at most 1 and a quotient of a probability and a sum of four, with twice its rounding.
    apart[np.abs(apart) <= 4 * answered.rounding] = 0.0
    f = np.abs(apart).sum(axis=3).mean(axis=2).mean(axis=1)
    kept = np.maximum(f, FLOOR)
    # ∂L/∂f, 0 where f is at its floor; a distance counts for both of its ends.
    steep = np.where(f > FLOOR, -reward / (number * kept), 0.0)
    pairs = np.sign(apart) * (steep[:, None] + steep[None, :])[:, :, None, None]
    by_a = pairs.sum(axis=1) / (4 * number)
    inside = (by_a * a).sum(axis=1, keepdims=True)
    slope = (by_a - np.where(sums > FLOOR, inside, 0.0)) / norms
    return float(-(reward * np.log(kept)).mean()), slope


def _through(
    slope: np.ndarray, given: Instances, answered: Answers
) -> tuple[np.ndarray, np.ndarray]:
    """From ∂L/∂P (n, 4, 2) to the parameters; a subject outside the k has no gradient."""
    moved = slope * answered.scale * answered.share
    z = answered.shares * -moved.sum(axis=2).ravel()  # softmax: ∂L/∂z = q (g − Σ q g)
    flat = z.ravel()
    for subject in range(2):  # each has a column of its own in every question
        flat[answered.at[:, :, subject].ravel()] += moved[:, :, subject].ravel()
    return z @ given.columns.T, z.sum(axis=1)
