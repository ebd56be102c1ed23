"""Means over training runs, whose variance is that of runs and of examples.

Axis letters: `r` runs (seeds of training), `k` clusters of examples.
"""

from typing import NamedTuple

import numpy as np

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, t_quantile
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.shares import wilson
from logitbank.analysis.stats.summary import EPSILON, Branch

FEWEST_RUNS = 3
"""Minimum number of runs of an interval."""


class RunsMean(NamedTuple):
    """A mean over runs, or a difference of two."""

    value: float
    low: float
    """Ends of the 95 % t interval; NaN for too few runs or examples, and without variance."""
    high: float


def runs_mean(
    runs: Branch,
    others: Branch | None = None,
    *,
    paired: bool = True,
    largest: float | None = None,
    signed: bool = False,
    degrees_of_examples: float | None = None,
) -> RunsMean:
    r"""The mean score of runs, or of `others` minus that of `runs`, with its uncertainty.

    R runs have the scores :math:`\theta_i`, to whose errors each of C clusters of examples adds
    :math:`e_{ic}`. The variance of runs is :math:`V_r=s^2_i(\theta_i)/R`, that of examples
    :math:`V_e=\sum_c\bar e_{\cdot c}^2`. Both contain :math:`V_{re}=\sum_c s^2_i(e_{ic})/R`. The
    variance is :math:`V=V_r+V_e-V_{re}`, but at least the larger of :math:`V_r` and :math:`V_e`,
    and t has :math:`V^2/(V_r^2/(R-1)+V_e^2/(C-1))` degrees of freedom.

    Parameters
    ----------
    runs, others
        Scores (r,) and influences (r, k) of all runs, of the same examples. If paired, run i of
        both sides has the same seed; otherwise their numbers of runs may differ.
    degrees_of_examples
        Degrees of freedom of the variance of examples, if clusters differ in size; C − 1 if None.
    largest
        The largest value of scores that are shares: 1, or 100 for percent. The interval of a mean
        is then Wilson's with that t, for as many examples as have this variance: no end is below 0
        or above the largest value. For a score of 0 or the largest value, these are the C clusters.
        An interval of a difference ends at the largest value and its negative. (Not in the papers.)
    signed
        Whether each score is a difference of two shares, so that its mean may be negative: its
        interval is that of a difference.

    References
    ----------
    Runs and examples as random together: Sellam et al. 2022, arXiv 2106.16163, §3. Variances: Owen
    2007, Ann. Appl. Stat. 1. Degrees of freedom: Satterthwaite 1946, Biometrics Bull. 2.
    """
    if others is None:
        sides = [(1, runs)]
    else:
        sides = [(1, others.minus(runs))] if paired else [(1, others), (-1, runs)]
    value = float(sum(sign * side.value.mean() for sign, side in sides))
    added = sum(sign * side.influence.mean(axis=0) for sign, side in sides)
    of_runs = [
        (float(_variance(side.value)) / len(side.value), len(side.value)) for _, side in sides
    ]
    common = sum(_variance(side.influence).sum() / len(side.influence) for _, side in sides)
    of_examples, clusters = float(np.sum(np.square(added))), runs.influence.shape[1]
    run_variance = sum(variance for variance, _ in of_runs)
    variance = max(run_variance, of_examples, run_variance + of_examples - common)
    enough = clusters >= FEWEST_CLUSTERS and min(number for _, number in of_runs) >= FEWEST_RUNS
    if not enough:
        return RunsMean(value, float("nan"), float("nan"))
    examples_degrees = clusters - 1 if degrees_of_examples is None else degrees_of_examples
    share = largest if others is None and not signed else None
    if share is not None and value in (0, share):
        return _share(value, share, examples_degrees + 1, float(t_quantile(examples_degrees)))
    half = float("nan")
    if variance > EPSILON**2:
        parts = [(part, number - 1) for part, number in of_runs] + [(of_examples, examples_degrees)]
        degrees = variance**2 / sum(part**2 / own for part, own in parts)
        t = float(t_quantile(degrees))
        half = t * float(np.sqrt(variance))
        if share is not None:
            return _share(value, share, value * (share - value) / variance, t)
    low, high = value - half, value + half
    if largest is not None:
        bound = largest * (2 if signed and others is not None else 1)
        low, high = max(low, -bound), min(high, bound)
    return RunsMean(value, low, high)


def measure_mean(
    measure: Measure,
    runs: Branch,
    others: Branch | None = None,
    *,
    paired: bool = True,
    degrees_of_examples: float,
) -> RunsMean:
    """`runs_mean` of scores of a measure. The interval of a mean ends where the measure does."""
    found = runs_mean(
        runs, others, paired=paired, largest=abs(measure.scale) if measure.share else None,
        signed=bool(measure.minus), degrees_of_examples=degrees_of_examples,
    )  # fmt: skip
    if measure.limits is None or others is not None:
        return found
    low, high = (float(np.clip(end, *measure.limits)) for end in (found.low, found.high))
    return RunsMean(found.value, low, high)


def _share(value: float, largest: float, count: float, t: float) -> RunsMean:
    """A mean of shares up to `largest`, which is worth so many examples."""
    low, high = (float(end) for end in wilson(value / largest, count, t))
    return RunsMean(value, largest * low, largest * high)


def _variance(values: Floats) -> Floats:
    """Variance over runs (ddof 1), NaN for one run."""
    n = len(values)
    return np.asarray(values.var(axis=0) * (n / (n - 1) if n > 1 else np.nan))
