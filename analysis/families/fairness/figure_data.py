"""The table behind each fairness figure. A figure draws its table and nothing else."""

from collections.abc import Iterable

import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.families.fairness.axes import CHECKPOINT
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.store.format.schema import folder_name

P_COLUMNS = ("mann_whitney_p", "mann_whitney_p_bh", "wilcoxon_p")
Tables = Iterable[tuple[str, pl.DataFrame]]


def fairness_figure_data(result: Fairness) -> dict[str, pl.DataFrame]:
    """The table behind each figure, by the figure's name.

    Names are `jsd_p`, `average_rank`, `neutral_options`, `rank_and_accuracy`, `accuracy` and
    `gap`. Where a frame has several models or runs, each has its own, `gap-<model>-<run>`; two
    models that are compared share one `neutral_options`. Every table begins with model, run and
    step and has one row per point drawn. `minus_sd` and `plus_sd` are one deviation between option
    orders away, in `gap` `low` and `high` the 95 % bootstrap interval; p values stand beside the
    points that they belong to.
    """
    return {
        kind + suffix: table
        for kind, tables in _TABLES.items()
        for suffix, table in tables(result)
        if not table.is_empty()
    }


def _jsd_p(result: Fairness) -> Tables:
    gendered = result.jsd_parts.filter(
        (pl.col("gold") == pl.col("option")) & pl.col("gold").is_in(result.labels[:2])
    )
    points = gendered.select(*CHECKPOINT, "gold", *_band("scaled", sd="sd_scaled"))
    return _per_series(_with_tests(points, result, "jsd_p"))


def _average_rank(result: Fairness) -> Tables:
    points = result.average_rank.select(*CHECKPOINT, "gold", *_band("average_rank", sd="sd"))
    return _per_series(_with_tests(points, result, "average_rank"))


def _neutral_options(result: Fairness) -> Tables:
    neutral = result.jsd_parts.filter(
        (pl.col("gold") == result.labels.neutral) & pl.col("option").is_in(result.labels[:2])
    )
    points = neutral.select(*CHECKPOINT, "option", *_band("scaled", sd="sd_scaled"))
    if result.comparison.is_empty():
        yield from _per_series(points.with_columns(**{name: pl.lit(None) for name in P_COLUMNS}))
        return
    models = [result.comparison["model"][0], result.comparison["other_model"][0]]
    others = points.filter(~pl.col("model").is_in(models))
    tests = _p_values(result.comparison, ("run", "step", "option"))
    both = points.filter(pl.col("model").is_in(models)).join(
        tests, on=["run", "step", "option"], how="left", nulls_equal=True, maintain_order="left"
    )
    runs = both["run"].unique(maintain_order=True).to_list()
    yield from (
        ("" if len(runs) == 1 else f"-{folder_name(run)}", both.filter(pl.col("run") == run))
        for run in runs
    )
    for part in others.partition_by("model", "run", maintain_order=True):
        alone = part.with_columns(**{name: pl.lit(None) for name in P_COLUMNS})
        yield f"-{folder_name(part['model'][0])}-{folder_name(part['run'][0])}", alone


def _rank_and_accuracy(result: Fairness) -> Tables:
    hits = result.accuracy.select(*CHECKPOINT, "gold", "accuracy")
    ranks = result.average_rank.select(*CHECKPOINT, "gold", "average_rank")
    return _per_series(
        ranks.join(
            hits, on=[*CHECKPOINT, "gold"], how="left", nulls_equal=True, maintain_order="left"
        )
    )


def _accuracy(result: Fairness) -> Tables:
    hits = result.accuracy.filter(pl.col("gold").is_in(list(result.labels)))
    return _per_series(hits.select(*CHECKPOINT, "gold", "accuracy"))


def _gap(result: Fairness) -> Tables:
    points = result.gap.select(
        *CHECKPOINT, value="delta_scaled", low="low_scaled", high="high_scaled"
    )
    changes = result.change_points.filter(kind="change point").select(
        *CHECKPOINT, "earliest", "latest", "mean_before", "mean_after"
    )
    return _per_series(points.join(changes, on=CHECKPOINT, how="left", maintain_order="left"))


_TABLES = {
    "jsd_p": _jsd_p,
    "average_rank": _average_rank,
    "neutral_options": _neutral_options,
    "rank_and_accuracy": _rank_and_accuracy,
    "accuracy": _accuracy,
    "gap": _gap,
}


def _band(value: str, *, sd: str) -> list[pl.Expr]:
    return [
        pl.col(value).alias("value"),
        (pl.col(value) - pl.col(sd)).alias("minus_sd"),
        (pl.col(value) + pl.col(sd)).alias("plus_sd"),
    ]


def _with_tests(points: pl.DataFrame, result: Fairness, measure: str) -> pl.DataFrame:
    tests = _p_values(result.tests.filter(pl.col("measure") == measure), CHECKPOINT)
    return points.join(tests, on=CHECKPOINT, how="left", nulls_equal=True, maintain_order="left")


def _p_values(tests: pl.DataFrame, on: tuple[str, ...]) -> pl.DataFrame:
    u = tests.filter(pl.col("test") == "mann_whitney")
    pairs = tests.filter(pl.col("test") == "wilcoxon")
    return u.select(*on, mann_whitney_p="p", mann_whitney_p_bh="p_bh").join(
        pairs.select(*on, wilcoxon_p="p"), on=on, how="left", nulls_equal=True
    )


def _per_series(table: pl.DataFrame) -> Tables:
    """One table per model and run, with the end of its name."""
    return per_run("", table).items()
