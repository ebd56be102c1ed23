"""The tables of fairness: means over prompts and seeds, with their spread and interval."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.axes import CHECKPOINT
from logitbank.analysis.families.fairness.baseline import Difference
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.cube import Cube
from logitbank.analysis.families.fairness.samples import Sample
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats, scaled, three_way_correct
from logitbank.analysis.stats.bootstrap import Interval, clustered_interval, percentile_interval
from logitbank.analysis.stats.significance import mean_present, seed_mean

Columns = Mapping[str, str | np.ndarray]


def asked_cells(expected: pl.DataFrame) -> dict[str, int]:
    """How many prompts, each under each of its orders, a model was asked."""
    cells = expected.select("model", "prompt_id", "order_seed").unique()
    return dict(cells.group_by("model").len().iter_rows())


def coverage(data: Cube, expected: Mapping[str, int] | None = None) -> pl.DataFrame:
    """Prompts and option orders that each checkpoint has, and how many of the cells it lacks.

    Of those that are `expected` of its model; where nobody says, of all that the cube has.
    """
    scored = ~np.isnan(data.ranks)
    cells, models = scored.sum(axis=(1, 2)), data.checkpoints["model"].to_list()
    whole = [
        scored[0].size if expected is None else expected.get(model, scored[0].size)
        for model in models
    ]
    return data.checkpoints.with_columns(
        prompts=scored.any(axis=1).sum(axis=1),
        orders=scored.any(axis=2).sum(axis=1),
        missing=np.maximum(np.array(whole, np.int64) - cells, 0),
    )


def rank_table(data: Cube, ranks: Sequence[Sample], *, labels: FairnessLabels) -> pl.DataFrame:
    """Average Rank of the gold token and its geometric mean, per gold option with its sample.

    The bootstrap interval of a mean of very skewed ranks is too short: at 20 sentences it covers
    58 to 88 %. That of the geometric mean rank, t on the scale of ln rank, covers 95 % there.
    """
    groups: list[Columns] = []
    for index, (label, sample) in enumerate(zip(labels, ranks, strict=True)):
        right = data.gold == index
        mean = seed_mean(sample.means)
        interval = _interval(sample.draws, mean.mean, sample.sentences)
        logs = mean_present(np.log(sample.values), axis=1)
        geometric = clustered_interval(logs, data.axes.clusters[right])
        groups.append(
            {
                "gold": label,
                "average_rank": mean.mean,
                "sd": mean.sd,
                "low": interval.low,
                "high": interval.high,
                "geometric_rank": np.exp(mean_present(logs, axis=1)),
                "geometric_low": np.exp(geometric.low),
                "geometric_high": np.exp(geometric.high),
                "prompts": sample.prompts,
                "sentences": sample.sentences,
                "orders": mean.seeds,
                "tied": data.tied[:, :, right].sum(axis=(1, 2)),
                "inexact": data.inexact[:, :, right].sum(axis=(1, 2)),
            }
        )
    return _tidy(data.checkpoints, groups)


def accuracy_table(data: Cube, *, labels: FairnessLabels) -> pl.DataFrame:
    """Accuracy per gold option, and for `all` prompts."""
    present = ~np.isnan(data.ranks)
    hits = np.where(present, data.top, np.nan)
    three_way = np.where(present, three_way_correct(data.logits, data.gold), np.nan)
    by_label = {label: data.gold == index for index, label in enumerate(labels)}
    groups: list[Columns] = []
    for label, prompts in {**by_label, "all": np.ones_like(data.gold, bool)}.items():
        top = seed_mean(mean_present(hits[:, :, prompts], axis=2))
        three = seed_mean(mean_present(three_way[:, :, prompts], axis=2))
        groups.append(
            {
                "gold": label,
                "accuracy": top.mean,
                "sd": top.sd,
                "three_way_accuracy": three.mean,
                "three_way_sd": three.sd,
                "prompts": present[:, :, prompts].any(axis=1).sum(axis=1),
            }
        )
    return _tidy(data.checkpoints, groups)


def jsd_table(
    checkpoints: pl.DataFrame, parts: Sequence[Sequence[Sample]], *, labels: FairnessLabels
) -> pl.DataFrame:
    """Mean JSD-P of every option over the prompts of every gold option.

    `parts` are samples of JSD-P in nats, by gold option and by option.
    """
    groups: list[Columns] = []
    for gold, of_options in zip(labels, parts, strict=True):
        for option, sample in zip(labels, of_options, strict=True):
            mean = seed_mean(sample.means)
            interval = _interval(sample.draws, mean.mean, sample.sentences)
            groups.append(
                {
                    "gold": gold,
                    "option": option,
                    **_both_units({"": mean.mean, "sd": mean.sd, **interval._asdict()}),
                    "prompts": sample.prompts,
                    "sentences": sample.sentences,
                }
            )
    return _tidy(checkpoints, groups)


def gap_table(data: Cube, difference: Difference) -> pl.DataFrame:
    """JSD-P(female | gold female) − JSD-P(male | gold male), seed by seed, then averaged."""
    delta = difference.mean
    interval = _interval(difference.draws, delta.mean, difference.sentences)
    nats = {"delta": delta.mean, "gap": np.abs(delta.mean), "sd": delta.sd}
    columns: Columns = {
        **_both_units(nats | interval._asdict()),
        "sentences": difference.sentences,
        "orders": delta.seeds,
    }
    return _tidy(data.checkpoints, [columns])


def change_table(gap: pl.DataFrame) -> pl.DataFrame:
    """Fairness increase from step to step; a release has no place in that order."""
    now = pl.col("gap_nats")
    series = gap.filter(pl.col("step").is_not_null())
    return series.select(
        *CHECKPOINT,
        from_first=_percent(now.first().over("model", "run"), now),
        from_previous=_percent(now.shift(1).over("model", "run"), now),
    )


def _percent(before: pl.Expr, after: pl.Expr) -> pl.Expr:
    change = 100 * (before - after) / before
    return pl.when(before != 0).then(change).otherwise(float("nan"))


def _interval(draws: Floats, mean: Floats, sentences: Codes) -> Interval:
    """Interval of the draws; NaN where there is no estimate, or of too few sentences."""
    low, high = percentile_interval(draws, clusters=sentences)
    return Interval(
        np.where(np.isnan(mean), np.nan, low),
        np.where(np.isnan(mean), np.nan, high),
    )


def _both_units(nats: Mapping[str, Floats]) -> dict[str, Floats]:
    columns = {f"{name}_nats".lstrip("_"): values for name, values in nats.items()}
    return columns | {f"{name}_scaled".lstrip("_"): scaled(v) for name, v in nats.items()}


def _tidy(checkpoints: pl.DataFrame, groups: Sequence[Columns]) -> pl.DataFrame:
    """Checkpoint after checkpoint, the groups of each in the order given."""
    # Of ten rows, so often that a query of each (7 ms of processor time) would be a third of all.
    rows = checkpoints[np.repeat(np.arange(len(checkpoints)), len(groups))]
    return rows.hstack(
        [
            pl.Series(name, _in_turn([group[name] for group in groups], len(checkpoints)))
            for name in groups[0]
        ]
    )


def _in_turn(values: Sequence[str | np.ndarray], checkpoints: int) -> list[str] | np.ndarray:
    """The first checkpoint's value of each group, then the second's; a text is of all of them."""
    texts = [value for value in values if isinstance(value, str)]
    return texts * checkpoints if texts else np.stack(values, axis=1).reshape(-1)
