"""Answers to instances through a filter: bias, UnQover's measures, and a loss with gradient.

Both objectives have a kink where a C, or a distance between two instances, is 0. The gradient there
is the subgradient 0, and "is 0" means: within `ROUNDING`. Otherwise the last bit would decide its
sign, and training would differ between processors. All weights 1 is such a start: an instance whose
subjects have the same ranks in all four questions has C = 0. It has no gradient until other
instances, whose ranks differ, change the filter; `train` refuses a start without any.

Source: Qureshi et al. 2024; the objective `direct` is not in the paper.
"""

from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.debias.instances import QUESTIONS, Instances
from logitbank.analysis.families.unqover import FAMILY
from logitbank.analysis.families.unqover.metric import Unqover
from logitbank.analysis.families.unqover.tables import (
    ALL,
    ROUNDING,
    level_items,
    subject_attribute_cells,
)
from logitbank.analysis.stats.summary import summarise
from logitbank.store.filter.filters import Filter

Objective = Literal["published", "direct"]
"""`published`: L = −(1/B) Σ r ln f with the reward r = −|C| held constant. `direct`: mean |C|."""
FLOOR = 1e-12
SIGNS = np.array([1.0, 1.0, -1.0, -1.0])


class FilteredAnswers(NamedTuple):
    """Probabilities of instances after a filter."""

    shares: np.ndarray
    """(k, 4 n): q, a column for each question."""
    scale: np.ndarray | float
    """(n, 4, 1): factor of q."""
    form_index: np.ndarray
    """(n, 4, 2): index, in the flat shares, of the likeliest form of a subject."""
    share: np.ndarray
    """(n, 4, 2): its q; 0 if the filter does not change the subject."""
    probabilities: np.ndarray
    """(n, 4, 2): P(x | question). Outside the k, 0 or unchanged, by the mode."""

    @property
    def bias(self) -> np.ndarray:
        """C (n,), 0 if it is within rounding."""
        return bias(self.probabilities)


def answers(data: Instances, filter_: Filter | None) -> FilteredAnswers:
    """Probabilities of the subjects after a filter; None is no filter."""
    filter_ = filter_ or Filter.identity(data.k)
    shares = filter_.shares(data.columns)
    flat, ((index, inside), *others) = shares.ravel(), data.form_indices
    share = flat.take(index) * inside
    for other, other_inside in others:  # few: most subjects have one form among the k
        likelier = flat.take(other) * other_inside
        index = np.where(likelier > share, other, index)
        share = np.maximum(share, likelier)
    if filter_.mode == "truncate":
        return FilteredAnswers(shares, 1.0, index, share, share)
    probabilities = share * data.mass
    share = share * (probabilities >= data.rest)
    kept = np.maximum(probabilities, data.rest)
    return FilteredAnswers(shares, data.mass, index, share, kept)


def bias(probabilities: np.ndarray) -> np.ndarray:
    """C (n,) of METRICS' joint comparison: ¼ Σ ± (P(x1) − P(x2)) over the four questions.

    If the eight probabilities cancel within rounding, C is 0: size and sign of the rest are noise.
    A score W ℓ + b of k + 1 terms has an error of about k ε Σ|W| max|ℓ|, and so has the logarithm
    of a probability: 2e-11 for k = 16, weights of 1 and logits of 100.
    """
    c = (probabilities[:, :, 0] - probabilities[:, :, 1]) @ SIGNS / 4
    total = probabilities.reshape(len(c), -1) @ np.ones(2 * QUESTIONS)
    return np.where(np.abs(c) <= ROUNDING * total / 4, 0.0, c)


def measured(data: Instances, p: np.ndarray) -> dict[str, float]:
    """Bias intensity μ and η, mean |C|, positional and attributive error, and the coverage.

    `p` is (n, 4, 2), as of `answers`. Each has its `_low` and `_high`, as in `Unqover.unqover`.
    """
    orders = np.abs(p[:, [0, 2]] - p[:, [1, 3]])
    attributes = np.abs(p[:, :2] - p[:, 2:, ::-1])
    of_filter = data.names.with_columns(
        pl.lit("").alias("model"),
        pl.lit("").alias("run"),
        pl.lit(None, pl.Int64).alias("step"),
        split=pl.lit(ALL),
        c=bias(p),
        positional=orders.mean(axis=(1, 2)),
        attributive=attributes.mean(axis=(1, 2)),
    )
    items = level_items(of_filter, subject_attribute_cells(of_filter))
    level = Unqover.unqover.of(summarise(items, FAMILY.measures)).row(0, named=True)
    names = [each.name for each in FAMILY.measures]
    row = {f"{name}{end}": level[f"{name}{end}"] for name in names for end in ("", "_low", "_high")}
    return {**row, "coverage": data.coverage, "instances": len(data)}


class Loss(NamedTuple):
    """A batch's loss, and its derivatives."""

    value: float
    weight: np.ndarray
    """(k, k)."""
    bias: np.ndarray
    """(k,)."""


def loss(data: Instances, filter_: Filter, objective: Objective) -> Loss:
    """The objective over a batch, and its gradient in the filter's parameters."""
    answered = answers(data, filter_)
    value, slope = (_direct if objective == "direct" else _published)(answered)
    return Loss(value, *_through(slope, data, answered))


def _direct(answered: FilteredAnswers) -> tuple[float, np.ndarray]:
    c = answered.bias
    slope = (np.sign(c) / (4 * len(c)))[:, None, None] * SIGNS[None, :, None]
    return float(np.abs(c).mean()), slope * np.array([1.0, -1.0])


def _published(answered: FilteredAnswers) -> tuple[float, np.ndarray]:
    probabilities, number = answered.probabilities, len(answered.probabilities)
    reward = -np.abs(answered.bias)
    sums = probabilities.sum(axis=1, keepdims=True)
    norms = np.maximum(sums, FLOOR)
    a = probabilities / norms
    distance = a[:, None] - a[None, :]
    # Both are at most 1 and a quotient of a probability and a sum of four, with twice its rounding.
    distance[np.abs(distance) <= 4 * ROUNDING] = 0.0
    f = np.abs(distance).sum(axis=3).mean(axis=2).mean(axis=1)
    kept = np.maximum(f, FLOOR)
    # ∂L/∂f, 0 if f is at its floor; a distance counts for both of its ends.
    steep = np.where(f > FLOOR, -reward / (number * kept), 0.0)
    pairs = np.sign(distance) * (steep[:, None] + steep[None, :])[:, :, None, None]
    by_a = pairs.sum(axis=1) / (4 * number)
    inside = (by_a * a).sum(axis=1, keepdims=True)
    slope = (by_a - np.where(sums > FLOOR, inside, 0.0)) / norms
    return float(-(reward * np.log(kept)).mean()), slope


def _through(
    slope: np.ndarray, data: Instances, answered: FilteredAnswers
) -> tuple[np.ndarray, np.ndarray]:
    """From ∂L/∂P (n, 4, 2) to the parameters; a subject outside the k has no gradient."""
    moved = slope * answered.scale * answered.share
    z = answered.shares * -moved.sum(axis=2).ravel()  # softmax: ∂L/∂z = q (g − Σ q g)
    flat = z.ravel()
    for subject in range(2):  # each has its own column in every question
        flat[answered.form_index[:, :, subject].ravel()] += moved[:, :, subject].ravel()
    return z @ data.columns.T, z.sum(axis=1)
