"""The tables of fairness: means over prompts and seeds, with their spread and interval."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.axes import CHECKPOINT, GoldCounts
from logitbank.analysis.families.fairness.baseline import Difference
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.cube import Cube
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats, scaled, three_way_correct
from logitbank.analysis.stats.bootstrap import (
    Interval,
    bootstrap_means,
    cluster_numbers,
    percentile_interval,
)
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


def rank_table(data: Cube, counts: GoldCounts, *, labels: FairnessLabels) -> pl.DataFrame:
    """Average Rank of the gold token, per gold option."""
    tables = []
    for index, label in enumerate(labels):
        right = data.gold == index
        ranks = data.ranks[:, :, right]
        mean = seed_mean(mean_present(ranks, axis=2))
        sentences = cluster_numbers(ranks, data.axes.clusters[right])
        interval = _interval(bootstrap_means(ranks, counts[index]), mean.mean, sentences)
        columns: dict[str, str | np.ndarray] = {
            "gold": label,
            "average_rank": mean.mean,
            "sd": mean.sd,
            "low": interval.low,
            "high": interval.high,
            "prompts": _prompts(ranks),
            "sentences": sentences,
            "orders": mean.seeds,
            "tied": data.tied[:, :, right].sum(axis=(1, 2)),
            "inexact": data.inexact[:, :, right].sum(axis=(1, 2)),
        }
        tables.append(_tidy(data.checkpoints, columns))
    return _sorted(tables)


def accuracy_table(data: Cube, *, labels: FairnessLabels) -> pl.DataFrame:
    """Accuracy per gold option, and for `all` prompts."""
    present = ~np.isnan(data.ranks)
    hits = np.where(present, data.top, np.nan)
    three_way = np.where(present, three_way_correct(data.logits, data.gold), np.nan)
    groups = {label: data.gold == index for index, label in enumerate(labels)}
    tables = []
    for label, prompts in {**groups, "all": np.ones_like(data.gold, bool)}.items():
        top = seed_mean(mean_present(hits[:, :, prompts], axis=2))
        three = seed_mean(mean_present(three_way[:, :, prompts], axis=2))
        columns: dict[str, str | np.ndarray] = {
            "gold": label,
            "accuracy": top.mean,
            "sd": top.sd,
            "three_way_accuracy": three.mean,
            "three_way_sd": three.sd,
            "prompts": _prompts(hits[:, :, prompts]),
        }
        tables.append(_tidy(data.checkpoints, columns))
    return _sorted(tables)


def jsd_table(
    data: Cube, parts: Floats, counts: GoldCounts, *, labels: FairnessLabels
) -> pl.DataFrame:
    """Mean JSD-P of every option over the prompts of every gold option."""
    tables = []
    for gold, gold_label in enumerate(labels):
        of_gender = data.gold == gold
        of_options = [parts[:, :, of_gender, option] for option in range(len(labels))]
        draws = np.split(
            bootstrap_means(np.concatenate(of_options), counts[gold]), len(labels), axis=1
        )
        for option, label in enumerate(labels):
            values = of_options[option]
            mean = seed_mean(mean_present(values, axis=2))
            sentences = cluster_numbers(values, data.axes.clusters[of_gender])
            interval = _interval(draws[option], mean.mean, sentences)
            columns: dict[str, str | np.ndarray] = {
                "gold": gold_label,
                "option": label,
                **_both_units({"": mean.mean, "sd": mean.sd, **interval._asdict()}),
                "prompts": _prompts(values),
                "sentences": sentences,
            }
            tables.append(_tidy(data.checkpoints, columns))
    return _sorted(tables)


def gap_table(data: Cube, difference: Difference) -> pl.DataFrame:
    """JSD-P(female | gold female) − JSD-P(male | gold male), seed by seed, then averaged."""
    delta = difference.mean
    interval = _interval(difference.draws, delta.mean, difference.sentences)
    nats = {"delta": delta.mean, "gap": np.abs(delta.mean), "sd": delta.sd}
    columns = {
        **_both_units(nats | interval._asdict()),
        "sentences": difference.sentences,
        "orders": delta.seeds,
    }
    return _tidy(data.checkpoints, columns)


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


def _prompts(values: Floats) -> np.ndarray:
    """Prompts with at least one value, per checkpoint."""
    count: np.ndarray = (~np.isnan(values)).any(axis=1).sum(axis=1)
    return count


def _tidy(checkpoints: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    # Of ten rows, so often that a query of each (7 ms of processor time) would be a third of all.
    return checkpoints.hstack(
        [
            pl.Series(name, [v] * len(checkpoints) if isinstance(v, str) else v)
            for name, v in columns.items()
        ]
    )


def _sorted(tables: list[pl.DataFrame]) -> pl.DataFrame:
    """Checkpoint after checkpoint, the groups of each in the order given."""
    return pl.concat(tables).sort(CHECKPOINT, nulls_last=True, maintain_order=True)
