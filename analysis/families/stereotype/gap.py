"""Distances of stereotype accuracy from one half as curves, for a trade-off."""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.families.stereotype.metric import stereotype_metric
from logitbank.analysis.families.tradeoff.curves import curve
from logitbank.analysis.frames.batches import Scan
from logitbank.analysis.frames.sources import frame_of
from logitbank.analysis.stats.shares import if_enough
from logitbank.errors import UsageError
from logitbank.store import Bank


def stereotype_gap(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None, bootstrap: int
) -> pl.DataFrame:
    """`stereotype_curve` of what pronouns banks give occupations."""
    return stereotype_curve(frame_of(banks, prompts, models))


def sa_gender_gap(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None, bootstrap: int
) -> pl.DataFrame:
    """`stereotype_curve` of what genders banks give occupations."""
    return stereotype_curve(None, frame_of(banks, prompts, models))


def stereotype_curve(frame: Scan | None, winobias: Scan | None = None) -> pl.DataFrame:
    """Stereotype accuracy on Type 2 sentences as a distance from one half."""
    table = stereotype_metric(frame, winobias).stereotype_accuracy
    rows = table.filter(pl.col("type") == 2, pl.col("accuracy").is_not_nan())
    if rows.is_empty():
        raise UsageError("stereotype accuracy has no Type 2 sentence; extract those too")
    enough = if_enough(pl.col("accuracy_stderr"), pl.col("sentences"))
    stderr = rows.select(enough).to_series()
    return curve(rows, rows["accuracy"] - 0.5, stderr=stderr)
