"""What a filter is trained to lower, with its gradient worked out by hand.

Source: Qureshi et al. 2024; the objective `direct` is ours.
"""

from typing import Literal, NamedTuple

import numpy as np

from logitbank.analysis.debias_data import SIGNS, Answers, Instances, answers, bias
from logitbank.store.filters import Filter

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
    found = answers(given, by)
    value, slope = (_direct if objective == "direct" else _published)(found.probabilities)
    return Loss(value, *_through(slope, given, found))


def _direct(probabilities: np.ndarray) -> tuple[float, np.ndarray]:
    c = bias(probabilities)
    slope = (np.sign(c) / (4 * len(c)))[:, None, None] * SIGNS[None, :, None]
    return float(np.abs(c).mean()), slope * np.array([1.0, -1.0])


def _published(probabilities: np.ndarray) -> tuple[float, np.ndarray]:
    number = len(probabilities)
    reward = -np.abs(bias(probabilities))
    sums = probabilities.sum(axis=1, keepdims=True)
    norms = np.maximum(sums, FLOOR)
    a = probabilities / norms
    apart = a[:, None] - a[None, :]
    f = np.abs(apart).sum(axis=3).mean(axis=2).mean(axis=1)
    kept = np.maximum(f, FLOOR)
    # ∂L/∂f, 0 where f is at its floor; a distance counts for both of its ends.
    steep = np.where(f > FLOOR, -reward / (number * kept), 0.0)
    pairs = np.sign(apart) * (steep[:, None] + steep[None, :])[:, :, None, None]
    by_a = pairs.sum(axis=1) / (4 * number)
    inside = (by_a * a).sum(axis=1, keepdims=True)
    slope = (by_a - np.where(sums > FLOOR, inside, 0.0)) / norms
    return float(-(reward * np.log(kept)).mean()), slope


def _through(slope: np.ndarray, given: Instances, found: Answers) -> tuple[np.ndarray, np.ndarray]:
    """From ∂L/∂P (n, 4, 2) to the parameters; a subject outside the k has no gradient."""
    own = slope * found.scale * found.share
    z = found.shares * -own.sum(axis=2).ravel()  # softmax: ∂L/∂z = q (g − Σ q g)
    flat = z.ravel()
    for subject in range(2):  # each has a column of its own in every question
        flat[found.at[:, :, subject].ravel()] += own[:, :, subject].ravel()
    return z @ given.columns.T, z.sum(axis=1)
