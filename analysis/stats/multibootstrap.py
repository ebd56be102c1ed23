"""The multibootstrap: resamples of training runs and of examples together.

Axis letters: `r` runs (seeds of training), `p` examples, `k` parts of a score, `b` resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import (
    FEWEST_CLUSTERS,
    bootstrap_means,
    central_interval,
    cluster_counts,
    t_quantile,
)

FEWEST_RUNS = 3
"""Minimum number of runs of an interval."""
_RESAMPLES = 100
"""Resamples at once: 54 MB for the 67,000 pairs of BLiMP."""


@dataclass(frozen=True, slots=True)
class Examples:
    """How examples make a score: the sum over parts of a weight times the mean of their examples.

    A mean has one part of weight 1. A difference of two means has the weights 1 and −1.
    """

    clusters: NDArray[np.int64]
    """(p,) number of the sentence or pair, from 0. It is resampled as a whole."""
    parts: NDArray[np.int64]
    """(p,) index of the part."""
    weights: Sequence[float] = (1.0,)
    """(k,) weight of each part."""

    def resampled(self, resamples: int, seed: np.random.Generator) -> Floats:
        """(b, p) number of draws of each example, without resamples that lack one of the parts."""
        counts = cluster_counts(self.clusters, resamples=resamples, seed=seed)
        drawn = [counts[:, self.parts == k].any(axis=1) for k in range(len(self.weights))]
        return counts[np.all(drawn, axis=0)]

    def scores(self, values: Floats, counts: Floats | None = None) -> Floats:
        """(r, p) values to the score of each run in every resample, (b, r); by default in one of
        every example once."""
        counts = np.ones((1, values.shape[1])) if counts is None else counts
        scores = np.zeros((len(counts), len(values)))
        for k, weight in enumerate(self.weights):
            part = self.parts == k
            scores += weight * bootstrap_means(values[:, None, part], counts[:, part])
        return scores


class RunsMean(NamedTuple):
    """A mean over runs, or a difference of two, with its 95 % intervals."""

    value: float
    low: float
    """Ends of the t interval; NaN for too few runs or examples, and without variance."""
    high: float
    percentile_low: float
    """Ends of the paper's interval, the percentiles of `draws`."""
    percentile_high: float
    draws: Floats
    """(b,) the mean in every resample of runs and examples."""


def multibootstrap(
    runs: Floats,
    others: Floats | None = None,
    *,
    examples: Examples,
    paired: bool = True,
    resamples: int = 1000,
    seed: int = 0,
) -> RunsMean:
    r"""The mean score of runs, or of `others` minus that of `runs`, with its uncertainty.

    Every resample draws runs and examples with replacement. All runs have the same examples. If
    paired, run i of both sides has the same seed, and both are drawn together.

    Percentiles of few runs are too narrow, so `low` and `high` are ends of a t interval. R runs
    have the scores :math:`\theta_i`, and :math:`\theta_{ij}` in resample j of C clusters. The
    variance of runs is :math:`V_r=s^2_i(\theta_i)/R`, that of examples
    :math:`V_e=\frac{C}{C-1}s^2_j(\bar\theta_{\cdot j})`. Both contain
    :math:`V_{re}=\frac{C}{C-1}\,\mathrm{mean}_j\,s^2_i(\theta_{ij}-\theta_i)/R`. The variance is
    :math:`V=V_r+V_e-V_{re}`, but at least the larger of :math:`V_r` and :math:`V_e`, and t has
    :math:`V^2/(V_r^2/(R-1)+V_e^2/(C-1))` degrees of freedom.

    Parameters
    ----------
    runs, others
        (r, p) values without NaN. Unpaired sides may have different numbers of runs.

    References
    ----------
    Sellam et al. 2022, arXiv 2106.16163, §3: resamples and percentiles. Not in the paper: the t
    interval, with the variances of Owen 2007, Ann. Appl. Stat. 1, and the degrees of freedom of
    Satterthwaite 1946, Biometrics Bull. 2.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> values = rng.normal(size=(5, 1)) + rng.normal(size=(5, 60))
    >>> one_mean = Examples(np.arange(60), np.zeros(60, np.int64))
    >>> found = multibootstrap(values, examples=one_mean)
    >>> bool(np.isclose(found.value, values.mean())), len(found.draws)
    (True, 1000)
    """
    sides = [runs] if others is None else [runs, others]
    chunks, random = [], np.random.default_rng(seed)
    for start in range(0, resamples, _RESAMPLES):
        counts = examples.resampled(min(_RESAMPLES, resamples - start), random)
        chunks.append([examples.scores(x, counts) for x in sides])
    drawn_scores = [np.concatenate(parts) for parts in zip(*chunks, strict=True)]
    scored = [(examples.scores(x)[0], each) for x, each in zip(sides, drawn_scores, strict=True)]
    if others is not None and paired:
        (scores, draws), (other_scores, other_draws) = scored
        scored = [(other_scores - scores, other_draws - draws)]
    clusters = len(np.unique(examples.clusters))
    enough = clusters >= FEWEST_CLUSTERS
    correction = clusters / max(clusters - 1, 1)
    b = len(drawn_scores[0])
    value, draws, example_draws = 0.0, np.zeros(b), np.zeros(b)
    parts, interaction = list[tuple[float, int]](), 0.0
    for number, (scores, drawn) in enumerate(scored, 1):
        sign, r = (1 if number == len(scored) else -1), len(scores)
        run_counts = cluster_counts(np.arange(r), resamples=b, seed=seed + number)
        value += sign * scores.mean()
        draws += sign * (run_counts * drawn).sum(axis=1) / r
        example_draws += sign * drawn.mean(axis=1)
        parts.append((float(_variance(scores)) / r, r - 1))
        interaction += correction * float(_variance(drawn - scores).mean()) / r
    parts.append((correction * float(example_draws.var()), clusters - 1))
    half = _half_width(parts, interaction) if enough else np.nan
    percentiles = central_interval(draws[:, None] if enough else np.empty((0, 1)))
    return RunsMean(
        float(value), value - half, value + half,
        float(percentiles.low[0]), float(percentiles.high[0]), draws,
    )  # fmt: skip


def _variance(values: Floats) -> Floats:
    """Variance over the last axis, NaN for one value."""
    n = values.shape[-1]
    return np.asarray(values.var(axis=-1) * (n / (n - 1) if n > 1 else np.nan))


def _half_width(parts: Sequence[tuple[float, int]], common: float) -> float:
    """Half the width of the t interval, from variances with their degrees of freedom.

    The last is that of examples; `common` is in it and in those of runs.
    """
    *run_parts, (example_variance, _) = parts
    run_variance = sum(variance for variance, _ in run_parts)
    total = run_variance + example_variance - common
    variance = max(run_variance, example_variance, total)
    if min(degrees for _, degrees in run_parts) < FEWEST_RUNS - 1 or not variance > 1e-28:
        return float("nan")
    degrees = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return float(t_quantile(degrees) * np.sqrt(variance))
