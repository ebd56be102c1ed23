"""What of fairness others take: values for a comparison of banks, the gap for a trade-off."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.axes import CHECKPOINT, Axes, GoldCounts
from logitbank.analysis.families.fairness.baseline import gender_difference
from logitbank.analysis.families.fairness.cube import CODED, Cube, each_cube
from logitbank.analysis.families.fairness.metric import LABELS, fairness_metric
from logitbank.analysis.families.fairness.samples import samples
from logitbank.analysis.families.tradeoff.curves import curve
from logitbank.analysis.frames.batches import Scan
from logitbank.analysis.frames.expressions import jsd_parts, scaled
from logitbank.analysis.frames.pieces import together
from logitbank.analysis.frames.shared import Wanted, made_of, shared_frames
from logitbank.analysis.frames.sources import bank_frames, frame_of
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.store import Bank

GAP = "fairness gap"


def fairness_headline(frames: Sequence[pl.LazyFrame], expected: pl.DataFrame) -> pl.DataFrame:
    """model, run, step, metric, group, value; no rows where the options are not fairness's."""
    options = pl.concat(frames).select(pl.col("option").unique()).collect()["option"]
    if set(options) != set(LABELS):
        return pl.DataFrame()
    result = fairness_metric(frames, bootstrap=0)
    columns = (
        (result.gap, "gap", pl.lit(""), "delta_scaled"),
        (result.average_rank, "average_rank", pl.col("gold"), "average_rank"),
        (result.accuracy, "accuracy", pl.col("gold"), "accuracy"),
        (result.accuracy, "three_way_accuracy", pl.col("gold"), "three_way_accuracy"),
    )
    return pl.concat(
        table.select(*CHECKPOINT, metric=pl.lit(name), group=group, value=pl.col(value))
        for table, name, group, value in columns
    )


def fairness_gap(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None, bootstrap: int
) -> pl.DataFrame:
    """`fairness_curve` of banks, which is that of the study where a report has read both."""
    frames = shared_frames(prompts) or frame_of(banks, prompts, models)
    made = made_of(frames, GAP)
    if made is not None:
        return together(made)
    return fairness_curve(frames[:], resamples=bootstrap)  # alone: the same would be made twice


def wanted_gap(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None, bootstrap: int
) -> list[Wanted]:
    """What a report's other studies of the prompts are to make for `fairness_gap`."""
    frames = shared_frames(prompts) or bank_frames(banks, prompts, models, coded=CODED)
    return [Wanted(GAP, prompts, frames, _gap_curves(resamples=bootstrap, seed=0))]


def fairness_curve(frame: Scan, *, resamples: int = 1000, seed: int = 0) -> pl.DataFrame:
    """The gap Δ of fairness, scaled and signed, with bootstrap draws over sentences.

    As in the table `gap` of `fairness_metric`; one resample has the same sentences at every
    checkpoint.
    """
    prepare = _gap_curves(resamples=resamples, seed=seed)
    return together(each_cube(frame, prepare, labels=LABELS, ties="competition"))


def _gap_curves(*, resamples: int, seed: int) -> Callable[[Axes], Callable[[Cube], pl.DataFrame]]:
    def prepare(axes: Axes) -> Callable[[Cube], pl.DataFrame]:
        return partial(_gap_curve, counts=axes.resampled(resamples=resamples, seed=seed))

    return prepare


def _gap_curve(data: Cube, *, counts: GoldCounts) -> pl.DataFrame:
    parts = jsd_parts(data.logits, data.gold)
    male, female, _ = samples(data, (parts[..., 0], parts[..., 1]), counts)
    delta = gender_difference(male[0], female[1]).in_unit(scaled)
    few = delta.sentences < FEWEST_CLUSTERS
    return curve(data.checkpoints, delta.mean.mean, draws=np.where(few, np.nan, delta.draws))
