"""What metrics move between two banks: the headline values of fairness, over what both have."""

import polars as pl

from logitbank.analysis.fairness import LABELS, Fairness, fairness
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
    """Headline values of one prompt set by either bank; no rows where no family understands it.

    `checkpoints` has model, run and step of those to compare.
    """
    if not all(_is_fairness(bank.prompts(prompts)) for bank in banks):
        return pl.DataFrame(schema=METRICS)
    own = [
        bank.scan(prompts).join(checkpoints, on=_CHECKPOINT, how="semi", nulls_equal=True)
        for bank in banks
    ]
    scans = [
        frame.join(other.select(_CELL), on=_CELL, how="semi", nulls_equal=True)
        for frame, other in zip(own, reversed(own), strict=True)
    ]
    if scans[0].select(pl.len()).collect().item() == 0:
        return pl.DataFrame(schema=METRICS)
    a, b = (_headline(fairness(scan, bootstrap=0)) for scan in scans)
    keys = [*_CHECKPOINT, "metric", "group"]
    return (
        a.join(b, on=keys, suffix="_b", nulls_equal=True, maintain_order="left")
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


def _is_fairness(prompts: pl.LazyFrame) -> bool:
    if not {"sentence_id", "paired"} <= set(prompts.collect_schema()):
        return False
    return set(prompts.select("option").unique().collect()["option"]) == set(LABELS)


def _headline(found: Fairness) -> pl.DataFrame:
    """model, run, step, metric, group, value."""
    columns = (
        (found.gap, "gap", pl.lit(""), "delta_scaled"),
        (found.average_rank, "average_rank", pl.col("gold"), "average_rank"),
        (found.accuracy, "accuracy", pl.col("gold"), "accuracy"),
        (found.accuracy, "three_way_accuracy", pl.col("gold"), "three_way_accuracy"),
    )
    return pl.concat(
        table.select(*_CHECKPOINT, metric=pl.lit(name), group=group, value=pl.col(value))
        for table, name, group, value in columns
    )
