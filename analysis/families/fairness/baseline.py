"""Differences between male and female answers, and how far each is from the untrained model's.

Significance over sentences says nothing about the prior that a model gives its tokens before any
training, so every test stands beside the same difference at the first checkpoint.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.axes import CHECKPOINT
from logitbank.analysis.families.fairness.samples import Sample
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import bootstrap_means, cluster_numbers, percentile_interval
from logitbank.analysis.stats.significance import SeedMean, mean_present, seed_mean

DRAWS = "draws"
"""Column of a table's rows on their way to `with_baseline`: (b,) resampled differences."""
BASELINE_SCHEMA = {
    "rank_biserial": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "sentences": pl.Int64,
    "baseline_step": pl.Int64,
    "baseline_rank_biserial": pl.Float64,
    "baseline_difference": pl.Float64,
    "from_baseline": pl.Float64,
    "from_baseline_low": pl.Float64,
    "from_baseline_high": pl.Float64,
}
"""What stands beside a test. Differences are of means, and point as the rank-biserial correlation:
female minus male, or the first model minus the other one."""


class Difference(NamedTuple):
    """A difference of means at every checkpoint, (c,), with its resamples."""

    mean: SeedMean
    draws: Floats
    """(b, c); the same sentences in one resample of all checkpoints."""
    sentences: Codes
    """Clusters of the side that has fewer."""

    def in_unit(self, unit: Callable[[Floats], Floats]) -> "Difference":
        """The same in another unit, a multiple of this one."""
        mean = SeedMean(unit(self.mean.mean), unit(self.mean.sd), self.mean.seeds)
        return Difference(mean, unit(self.draws), self.sentences)


def gender_difference(male: Sample, female: Sample) -> Difference:
    """Mean over prompts whose answer is female minus that over those whose answer is male."""
    return Difference(
        seed_mean(female.means - male.means),
        female.draws - male.draws,
        np.minimum(male.sentences, female.sentences),
    )


def model_difference(values: Floats, counts: Floats, clusters: Codes) -> Difference:
    """Mean over prompts of a difference within each prompt, (c, s, p)."""
    return Difference(
        seed_mean(mean_present(values, axis=2)),
        bootstrap_means(values, counts),
        cluster_numbers(values, clusters),
    )


def with_difference(rows: pl.DataFrame, difference: Difference) -> pl.DataFrame:
    """Rows of the checkpoints of `difference`, with its mean, number of sentences and draws."""
    return with_draws(rows, difference).with_columns(
        difference=pl.Series(difference.mean.mean), sentences=pl.Series(difference.sentences)
    )


def with_draws(rows: pl.DataFrame, difference: Difference) -> pl.DataFrame:
    """Rows of the checkpoints of `difference`, with its draws."""
    by_checkpoint = np.ascontiguousarray(difference.draws.T)
    return rows.with_columns(pl.Series(DRAWS, by_checkpoint).cast(pl.List(pl.Float64)))


def draws_of(rows: pl.DataFrame) -> Floats:
    """The draws of rows, (b, n), all of which have as many."""
    lists = rows[DRAWS]
    if not lists.list.len().sum():
        return np.empty((0, len(rows)))
    return lists.explode().to_numpy().reshape(len(rows), -1).T


def with_baseline(rows: pl.DataFrame, *, group: tuple[str, ...]) -> pl.DataFrame:
    """Tests of all checkpoints, in order, with the columns of `BASELINE_SCHEMA` for the draws.

    The baseline of a model, run and `group` is its first checkpoint, which is the untrained model
    where the run's first step is there; a release alone is its own. The difference from it is
    paired: one resample has the same sentences at both. NaN at the baseline itself; bounds also
    without draws, or from fewer sentences than an interval needs.
    """
    parts = [
        _beside_the_first(part)
        for part in rows.partition_by("model", "run", *group, maintain_order=True)
    ]
    if not parts:
        return rows.drop(DRAWS).with_columns(
            pl.lit(None, dtype).alias(name)
            for name, dtype in BASELINE_SCHEMA.items()
            if name not in rows.columns
        )
    return pl.concat(parts).sort(CHECKPOINT, nulls_last=True, maintain_order=True)


def _beside_the_first(part: pl.DataFrame) -> pl.DataFrame:
    """One model, run and group; the first row is the baseline."""
    draws = draws_of(part)
    sentences = part["sentences"].to_numpy()
    difference, effect = part["difference"].to_numpy(), part["rank_biserial"]
    interval = percentile_interval(draws, clusters=sentences)
    change = percentile_interval(draws - draws[:, :1], clusters=np.minimum(sentences, sentences[0]))
    moved = difference - difference[0]
    for values in (moved, change.low, change.high):
        values[0] = np.nan  # the baseline is at no distance from itself that could be uncertain
    return part.drop(DRAWS).with_columns(
        low=pl.Series(interval.low),
        high=pl.Series(interval.high),
        baseline_step=pl.lit(part["step"][0], pl.Int64),
        baseline_rank_biserial=pl.lit(effect[0]),
        baseline_difference=pl.lit(difference[0]),
        from_baseline=pl.Series(moved),
        from_baseline_low=pl.Series(change.low),
        from_baseline_high=pl.Series(change.high),
    )
