"""Differences of means at every checkpoint, with their resamples and their change since the first.

An untrained model also prefers some tokens to others, so a significant difference alone is no
evidence of learning. Every test therefore has the same difference at the first checkpoint.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.bootstrap import percentile_interval
from logitbank.analysis.stats.significance import SeedMean

DRAWS = "draws"
"""Column of resampled differences, (b,), which `with_baseline` replaces by intervals."""
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
"""Columns of `with_baseline`."""


class Difference(NamedTuple):
    """A difference of means at every checkpoint, (c,), with its resamples."""

    mean: SeedMean
    draws: Floats
    """(b, c); one resample has the same sentences at all checkpoints."""
    sentences: Codes
    """Number of clusters of the smaller side."""


def with_draws(rows: pl.DataFrame, draws: Floats) -> pl.DataFrame:
    """A row per checkpoint with its draws, from (b, c)."""
    by_checkpoint = np.ascontiguousarray(draws.T)
    return rows.with_columns(pl.Series(DRAWS, by_checkpoint).cast(pl.List(pl.Float64)))


def stacked_draws(rows: pl.DataFrame) -> Floats:
    """The draws of rows, (b, n); every row has b."""
    lists = rows[DRAWS]
    if not lists.list.len().sum():
        return np.empty((0, len(rows)))
    return lists.explode().to_numpy().reshape(len(rows), -1).T


def with_baseline(rows: pl.DataFrame, *, group: tuple[str, ...]) -> pl.DataFrame:
    """Tests of all checkpoints, in order, with the columns of `BASELINE_SCHEMA` for the draws.

    The baseline of a model, run and `group` is its first checkpoint: the untrained model if the run
    has step 0; a single release is its own. The difference from it is paired: one resample has the
    same sentences at both. NaN at the baseline itself; bounds are also NaN without draws, or with
    too few sentences.
    """
    parts = rows.partition_by("model", "run", *group, maintain_order=True)
    table = pl.concat(_from_first(part) for part in parts)
    return table.sort(CHECKPOINT, nulls_last=True, maintain_order=True)


def _from_first(part: pl.DataFrame) -> pl.DataFrame:
    """One model, run and group; the first row is the baseline."""
    draws = stacked_draws(part)
    sentences = part["sentences"].to_numpy()
    difference, effect = part["difference"].to_numpy(), part["rank_biserial"]
    interval = percentile_interval(draws, clusters=sentences)
    change = percentile_interval(draws - draws[:, :1], clusters=np.minimum(sentences, sentences[0]))
    moved = difference - difference[0]
    for values in (moved, change.low, change.high):
        values[0] = np.nan  # the difference of the baseline from itself is certain
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
