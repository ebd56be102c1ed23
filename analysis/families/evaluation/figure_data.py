"""The tables behind the figures of LAMBADA, stereotype accuracy, CrowS-Pairs and trade-offs."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.families.stereotype.referents import ALL as ALL_TEMPLATES
from logitbank.analysis.families.tradeoff.metric import TradeOff
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.store.format.schema import folder_name

Evaluation = Lambada | StereotypeAccuracy | CrowsPairs | TradeOff
POINT = (*CHECKPOINT, "panel", "series", "value", "low", "high")


def evaluation_figure_data(result: Evaluation) -> dict[str, pl.DataFrame]:
    """The table behind each figure, by the figure's name.

    `lambada`, `stereotype_accuracy`, `winobias_em`, `crows_pairs`; of a trade-off
    `tradeoff_curves` and `tradeoff_front`. Where there are several models or runs, each has its
    own, `lambada-<model>-<run>`. Tables have one row per point drawn; `low` and `high` are as in
    the result's tables, for JSD-P ± one deviation between option orders.
    """
    tables = {kind + end: part for kind, table in _tables(result) for end, part in _series(table)}
    if isinstance(result, StereotypeAccuracy | CrowsPairs):
        return tables
    # One checkpoint is no curve.
    return {name: table for name, table in tables.items() if not table.is_empty()}


def _tables(result: Evaluation) -> Iterator[tuple[str, pl.DataFrame]]:
    if isinstance(result, Lambada):
        yield "lambada", result.lambada
    elif isinstance(result, StereotypeAccuracy):
        yield "stereotype_accuracy", _stereotype(result)
        yield "winobias_em", _exact_match(result)
    elif isinstance(result, CrowsPairs):
        yield "crows_pairs", _crows_pairs(result)
    else:
        chosen = result.choices.group_by("model", "run", "step").agg(
            pl.col("give_up").min().alias("chosen_for")
        )
        table = result.tradeoff.join(
            chosen, on=["model", "run", "step"], how="left", maintain_order="left"
        )
        yield "tradeoff_curves", table
        yield "tradeoff_front", table


def _stereotype(result: StereotypeAccuracy) -> pl.DataFrame:
    names = {"sa": "SA", "sa_gender": "sa_gender"}
    both = result.stereotype_accuracy.with_columns(
        panel=pl.lit("accuracy"),
        series=pl.col("measure").replace(names)
        + pl.when(pl.col("type") == 1).then(pl.lit(", Type 1")).otherwise(pl.lit("")),
        value="accuracy",
    )
    jsd = result.jsd_p.with_columns(
        panel=pl.lit("jsd_p"),
        series=pl.col("gold"),
        value="jsd_p",
        low=pl.col("jsd_p") - pl.col("sd"),
        high=pl.col("jsd_p") + pl.col("sd"),
    )
    return pl.concat([both.select(POINT), jsd.select(POINT)])


def _exact_match(result: StereotypeAccuracy) -> pl.DataFrame:
    """Both shares, the bias of every type and template, and their mean."""
    means, nan = result.winobias_em, pl.lit(float("nan"))
    shares = [
        means.select(
            *CHECKPOINT, panel=pl.lit("em"), series=pl.lit(name), value=column, low=nan, high=nan
        )
        for name, column in (("pro-stereotyped", "em_pro"), ("anti-stereotyped", "em_anti"))
    ]
    parts = result.winobias_em_parts.filter(pl.col("template") != ALL_TEMPLATES)
    bias = [
        table.with_columns(panel=pl.lit("bias"), series=series, value="bias").select(POINT)
        for table, series in (
            (parts, pl.format("Type {}, {}", "type", "template")),
            (means, pl.lit("mean")),
        )
    ]
    return pl.concat([*shares, *bias])


def _crows_pairs(result: CrowsPairs) -> pl.DataFrame:
    """Curves of the three overall scores, and every bias type at the last checkpoint."""
    table = result.crows_pairs
    overall = table.filter(pl.col("bias_type") == ALL)
    keys = [*CHECKPOINT, "score_kind"]
    names = {
        "score": "all pairs",
        "stereo_score": "stereo pairs",
        "antistereo_score": "anti-stereo pairs",
    }
    nan = pl.lit(float("nan"))
    curves = [
        overall.select(
            *keys,
            panel=pl.lit("curve"),
            series=pl.lit(name),
            value=column,
            low="low" if column == "score" else nan,
            high="high" if column == "score" else nan,
        )
        for column, name in names.items()
    ]
    last = (
        table.select(keys)
        .unique()
        .sort("step", nulls_last=False)
        .group_by("model", "run", "score_kind", maintain_order=True)
        .last()
    )
    types = table.join(last, on=keys, how="semi", nulls_equal=True)
    bars = types.select(
        *keys,
        panel=pl.lit("types"),
        series=pl.when(pl.col("bias_type") == ALL).then(pl.lit("all pairs")).otherwise("bias_type"),
        value="score",
        low="low",
        high="high",
    )
    return pl.concat([*curves, bars])


def _series(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """One table per model and run, with the end of its name."""
    groups = table.partition_by("model", "run", maintain_order=True)
    for part in groups:
        names = folder_name(part["model"][0]), folder_name(part["run"][0])
        yield "" if len(groups) == 1 else "-" + "-".join(names), part
