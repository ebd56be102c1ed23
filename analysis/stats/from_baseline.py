"""Paired differences of shares from the first checkpoint, over the items of both.

Items are sentences, pairs or words.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.shares import Z95, if_enough

BASELINE = {
    "baseline_step": pl.Int64,
    "from_baseline": pl.Float64,
    "from_baseline_low": pl.Float64,
    "from_baseline_high": pl.Float64,
    "common": pl.Int64,
}
"""Columns of `with_difference`."""


def collect_items(
    rows: pl.DataFrame, group: Sequence[str], *, item: str, value: pl.Expr
) -> pl.DataFrame:
    """Items of one frame for `with_difference`: lists by checkpoint, 16 bytes an item.

    Items are identified by a hash of 64 bits; two of 100,000 collide with probability 3e-10.
    """
    return rows.group_by(*CHECKPOINT, *group, maintain_order=True).agg(
        item=pl.col(item).hash(), value=value.cast(pl.Float64)
    )


def with_difference(
    table: pl.DataFrame, items: Sequence[pl.DataFrame], group: Sequence[str], *, scale: float = 1.0
) -> pl.DataFrame:
    r"""A table of shares with the difference of each from the first checkpoint of its run.

    The baseline is the first step of a model, run and `group`: the untrained model if that is
    step 0. :math:`d_i` in [−1, 1] is the difference of the value of item :math:`i`, over the n
    items of both checkpoints. `from_baseline` is the mean of :math:`d`; its 95 % interval is that
    of Bonett and Price for a difference of paired shares, with one item added for each direction.
    NaN at the baseline itself and without a common item, and without bounds for fewer than ten.

    Parameters
    ----------
    table
        One row per checkpoint and `group`.
    items
        `collect_items` of each frame; a checkpoint is in one of them.
    scale
        Scale of the share in the table: 100 for percent.

    References
    ----------
    Bonett & Price 2012, J. Educ. Behav. Stat. 37. Not in the paper: values of ½ for ties.

    Examples
    --------
    >>> rows = pl.DataFrame({"model": "m", "run": "main", "step": [0, 0, 8, 8],
    ...     "name": ["a", "b"] * 2, "hit": [0, 1, 1, 1]})
    >>> items = collect_items(rows, (), item="name", value=pl.col("hit"))
    >>> shares = pl.DataFrame({"model": "m", "run": "main", "step": [0, 8], "share": [0.5, 1.0]})
    >>> with_difference(shares, [items], ()).select("from_baseline", "common").rows()
    [(nan, 2), (0.5, 2)]
    """
    series = ["model", "run", *group]
    keys = [*CHECKPOINT, *group]
    checkpoints = pl.concat(part.select(keys) for part in items)
    steps = checkpoints.group_by(series).agg(baseline_step=pl.col("step").min())
    first = pl.concat(_baseline_items(part, steps) for part in items)
    # Frame by frame: the items of 154 checkpoints at once took 100 MB.
    changes = pl.concat(_changes(part, first, series, scale=scale) for part in items)
    half = Z95 * pl.col("variance").sqrt()
    ends = {"low": pl.col("centre") - half, "high": pl.col("centre") + half}
    bounds = changes.with_columns(
        (scale * if_enough(end.clip(-1, 1), pl.col("common"))).alias(f"from_baseline_{name}")
        for name, end in ends.items()
    )
    changes = bounds.select(*keys, *(name for name in BASELINE if name in bounds.columns))
    joined = table
    for more, on in ((changes, keys), (steps, series)):
        joined = joined.join(more, on=on, how="left", nulls_equal=True, maintain_order="left")
    numbers = [name for name in BASELINE if name.startswith("from_")]
    itself = pl.col("step").eq_missing(pl.col("baseline_step"))
    known = joined.with_columns(
        pl.when(itself).then(np.nan).otherwise(pl.col(numbers).fill_null(np.nan)).name.keep(),
        pl.col("common").fill_null(0),
    )
    return known.select(
        *table.columns, *(pl.col(name).cast(dtype) for name, dtype in BASELINE.items())
    )


def _baseline_items(part: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The items of baselines, one row each."""
    placed = part.join(steps, on=steps.columns[:-1], nulls_equal=True)
    first = placed.filter(pl.col("step").eq_missing(pl.col("baseline_step")))
    return first.select(*steps.columns[:-1], "item", before="value").explode("item", "before")


def _changes(
    part: pl.DataFrame, first: pl.DataFrame, series: Sequence[str], *, scale: float
) -> pl.DataFrame:
    """Means of one frame's checkpoints over the items that are also in their baseline."""
    # In the order of the items, so that sums have the same bits each time.
    both = part.explode("item", "value").join(
        first, on=[*series, "item"], nulls_equal=True, maintain_order="left"
    )
    d, n = pl.col("value") - pl.col("before"), pl.len()
    centre = d.sum() / (n + 2)
    return both.group_by("step", *series).agg(
        from_baseline=scale * d.mean(),
        centre=centre,
        variance=(((d**2).sum() + 2) / (n + 2) - centre**2) / (n + 2),
        common=n.cast(pl.Int64),
    )
