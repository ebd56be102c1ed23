"""Divergences between the checkpoints of a run, and which checkpoints do not fit their place."""

from itertools import pairwise

import numpy as np

from logitbank.analysis.frames.expressions import ROUNDING, Floats, clip_divergence

FACTOR = 4
"""How many times as large a misplaced checkpoint's divergence is. Among 2,340 simulated runs of 12
kinds, a factor of 2 named a correct checkpoint in 8 %, and 4 in 2 %. With 4, only runs
whose prompts all move together, at random or along one line that turns, had one."""
NEARBY = 5
"""Checkpoints on each side that show how fast training moves there."""
FEWEST = 8
"""Fewest checkpoints of a run in which one can be misplaced."""
_COLUMNS = 256
"""Entries at once: those of 154 checkpoints are 315 kB, which stay in a core's cache."""


def js_divergences(p: Floats) -> Floats:
    r"""Jensen–Shannon divergence of every pair of rows, summed over their distributions.

    With :math:`m=(p+q)/2` it is
    :math:`\sum_v\frac12p_v\ln p_v+\frac12q_v\ln q_v-m_v\ln m_v`.

    Parameters
    ----------
    p
        (c, v) float64 probabilities of each checkpoint: one distribution, or several that follow
        one another.

    Returns
    -------
    numpy.ndarray
        (c, c) nats, symmetric, 0 to ln 2 for each distribution. Rounding (below 1e-12) is 0.

    Examples
    --------
    >>> (js_divergences(np.array([[1.0, 0.0], [0.0, 1.0]])) / np.log(2)).round(3).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    sums = np.zeros((len(p), len(p)))
    for start in range(0, p.shape[1], _COLUMNS):
        part = np.ascontiguousarray(p[:, start : start + _COLUMNS])
        own = _sum_plogp(part)
        for at in range(len(part) - 1):
            middle = _sum_plogp((part[at] + part[at + 1 :]) / 2)
            sums[at, at + 1 :] += clip_divergence((own[at] + own[at + 1 :]) / 2 - middle)
    sums[sums < ROUNDING] = 0
    return sums + sums.T


def _sum_plogp(p: Floats) -> Floats:
    """Sum of p ln p of each row; a probability of 0 adds nothing."""
    logs = np.log(np.maximum(p, np.finfo(np.float64).tiny))
    return np.asarray(np.einsum("cv,cv->c", p, logs))


def misplaced(divergences: Floats) -> list[int]:
    """Indices of the checkpoints of a run that are nearer to a distant step than to its neighbours.

    `divergences` is (c, c), in the order of the steps. The clearest one leaves the run before the
    others are examined, because it is their neighbour. The first checkpoint never counts: training
    moves fastest there.
    """
    found: list[int] = []
    kept = list(range(len(divergences)))
    while len(kept) >= FEWEST:
        excess = {each: _excess(divergences, kept, at) for at, each in enumerate(kept) if at > 0}
        clearest = max(excess, key=excess.__getitem__)
        if excess[clearest] <= FACTOR:
            break
        found.append(clearest)
        kept.remove(clearest)
    return sorted(found)


def _excess(divergences: Floats, kept: list[int], at: int) -> float:
    """Divergence of one checkpoint from its neighbours, as a multiple of the usual one nearby.

    The usual divergence is the largest of successive checkpoints near it, or its own from the
    nearest distant checkpoint if that is larger.
    """
    own, rest = kept[at], kept[:at] + kept[at + 1 :]
    neighbours = rest[at - 1 : at + 1]
    nearby = rest[max(at - NEARBY, 0) : at + NEARBY]
    usual = max(divergences[one, other] for one, other in pairwise(nearby))
    distant = min(divergences[own, other] for other in rest if other not in neighbours)
    nearer = min(divergences[own, other] for other in neighbours)
    if nearer == 0:
        return 0.0
    largest = max(usual, distant)
    return float(nearer / largest) if largest > 0 else np.inf
