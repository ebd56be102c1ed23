"""The distance of the CrowS-Pairs score from one half as a curve, for a trade-off."""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.families.crows_pairs.metric import ALL, crows_pairs_metric
from logitbank.analysis.families.tradeoff.curves import curve
from logitbank.analysis.frames.batches import Scan
from logitbank.analysis.frames.expected import expected_pieces
from logitbank.analysis.frames.sources import frame_of
from logitbank.analysis.stats.shares import if_enough
from logitbank.store import Bank


def crows_pairs_gap(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None, bootstrap: int
) -> pl.DataFrame:
    """`crows_pairs_curve` of banks."""
    frame, pieces = frame_of(banks, prompts, models), expected_pieces(banks, prompts)
    return crows_pairs_curve(frame, expected=pieces)


def crows_pairs_curve(frame: Scan, *, expected: pl.DataFrame | None = None) -> pl.DataFrame:
    """The metric score of CrowS-Pairs over all bias types as a distance from one half."""
    table = crows_pairs_metric(frame, expected=expected).crows_pairs
    rows = table.filter(pl.col("bias_type") == ALL)
    stderr = rows.select(if_enough(pl.col("score_stderr") / 100, pl.col("pairs"))).to_series()
    return curve(rows, rows["score"] / 100 - 0.5, stderr=stderr)
