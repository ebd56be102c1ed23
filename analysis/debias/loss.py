"""What a filter is trained to lower, with its gradient worked out by hand.

Both objectives have a kink where a C, or a distance between two instances, is 0. The gradient there
is the subgradient 0, and "is 0" means: no more than rounding. Without that bound the sign of the
last bit decides, and training goes another way on another processor. All weights 1 is such a start:
an instance whose subjects have the same ranks in all four questions is answered alike in all of
them, and has C = 0. It has no gradient until other instances, whose ranks differ, move the filter;
`train` refuses a start at which there are none.

Source: Qureshi et al. 2024; the objective `direct` is ours.
"""

from typing import Literal, NamedTuple

import numpy as np

from logitbank.analysis.debias.answers import SIGNS, Answers, answers
from logitbank.analysis.debias.instances import Instances
from logitbank.store.filter.filters import Filter

Objective = Literal["published", "direct"]
"""`published`: L = −(1/B) Σ r ln f with the reward r = −|C| held constant. `direct`: mean |C|."""
FLOOR = 1e-12


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
