"""What metrics move between two banks: the headline values of families, over what both have."""

from collections.abc import Collection, Iterator

import polars as pl

from logitbank.analysis.family import families
from logitbank.analysis.frames.apart import ColumnsOf
from logitbank.analysis.frames.batches import ROWS
from logitbank.analysis.frames.expected import expected_pieces
from logitbank.store import Bank

METRICS = {
    "model": pl.String,
    "run": pl.String,
    "step": pl.Int64,
    "prompts": pl.String,
    "metric": pl.String,
    "group": pl.String,
    "a": pl.Float64,
    "b": pl.Float64,
    "difference": pl.Float64,
}
_CHECKPOINT = ["model", "run", "step"]
_CELL = [*_CHECKPOINT, "prompt_id", "order_seed", "piece", "option"]


def metric_differences(
    banks: tuple[Bank, Bank], prompts: str, checkpoints: pl.LazyFrame
) -> pl.DataFrame:
    """Headline values of one prompt set by either bank; no rows where no family has any.

    `checkpoints` has model, run and step of those to compare.
    """
    headlines = [
        family.headline
        for family in families().values()
        if family.headline and all(family.prompts(ColumnsOf([bank], [prompts])) for bank in banks)
    ]
    if not headlines:
        return pl.DataFrame(schema=METRICS)
    steps = checkpoints.select("step").unique().collect()["step"].to_list()
    both: tuple[list[pl.LazyFrame], list[pl.LazyFrame]] = [], []
    for pair in _in_step(banks, prompts, steps):
        family = [
            frame.join(checkpoints, on=_CHECKPOINT, how="semi", nulls_equal=True) for frame in pair
        ]
        scans = [
            frame.join(others.select(_CELL), on=_CELL, how="semi", nulls_equal=True)
            for frame, others in zip(family, reversed(family), strict=True)
        ]
        if scans[0].select(pl.len()).collect().item():
            for frames, scan in zip(both, scans, strict=True):
                frames.append(scan)
    if not both[0]:
        return pl.DataFrame(schema=METRICS)
    # A prompt that either bank has a part of is no whole one.
    pieces = [expected_pieces([bank], prompts) for bank in banks]
    return pl.concat(
        _side_by_side(headline(both[0], pieces[0]), headline(both[1], pieces[1]), prompts)
        for headline in headlines
    )


def _side_by_side(one: pl.DataFrame, other: pl.DataFrame, prompts: str) -> pl.DataFrame:
    if one.is_empty() or other.is_empty():
        return pl.DataFrame(schema=METRICS)
    keys = [*_CHECKPOINT, "metric", "group"]
    return (
        one.join(other, on=keys, suffix="_b", nulls_equal=True, maintain_order="left")
        .select(
            *_CHECKPOINT,
            "metric",
            "group",
            prompts=pl.lit(prompts),
            a="value",
            b="value_b",
            difference=pl.col("value_b") - pl.col("value"),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in METRICS.items())
    )


def _in_step(
    banks: tuple[Bank, Bank], prompts: str, steps: Collection[int | None]
) -> Iterator[tuple[pl.LazyFrame, pl.LazyFrame]]:
    """Scans of both banks at the same steps, a few steps at a time."""
    common = set(steps)
    size = 1
    for bank in banks:
        counts = dict(bank.prompts(prompts).group_by("query_set").len().collect().iter_rows())
        size = max(size, *counts.values())
        common &= {d.checkpoint.step for d in bank.deposits() if d.query_set in counts}
    ordered = sorted(common, key=lambda step: (step is None, step or 0))
    at_once = max(ROWS // size, 1)
    for start in range(0, len(ordered), at_once):
        chunk = ordered[start : start + at_once]
        yield banks[0].scan(prompts, steps=chunk), banks[1].scan(prompts, steps=chunk)
