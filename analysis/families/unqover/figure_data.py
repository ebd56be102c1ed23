"""The table behind each UnQover figure. A figure draws its table and nothing else."""

import polars as pl

from logitbank.analysis.drawing.names import Tables, named_tables
from logitbank.analysis.families.unqover.metric import ALL, HEAD, Unqover

ENDS = 15
"""Subjects shown at either end of a long ranking."""
ROWS = 24
"""Attributes shown."""
PANELS = ("mu", "eta", "positional", "attributive")
KEYS = ["model", "run", "category"]


def unqover_figure_data(result: Unqover) -> dict[str, pl.DataFrame]:
    """The table behind each figure, by the figure's name, of all splits together.

    `ranked_subjects` (γ of each subject at the last checkpoint, of a long ranking the ends) and
    `attribute_strengths` (γ of each subject with the attributes of greatest strength, and their
    mean: for gender towards the female name, else of sizes) for every category; and
    `unqover_training` (μ, η and errors of all categories) where there are several checkpoints.
    Where there are several models, runs or categories, each has its own, such as
    `ranked_subjects-gender`. A table has one row per point drawn.
    """
    kinds = {"ranked_subjects": _ranked, "attribute_strengths": _strengths}
    tables = {kind: _each(table(result), KEYS) for kind, table in kinds.items()}
    tables["unqover_training"] = _each(_training(result), KEYS[:2])
    return named_tables(tables)


def _each(table: pl.DataFrame, keys: list[str]) -> Tables:
    for part in table.partition_by(keys, maintain_order=True):
        yield keys, part


def _last(table: pl.DataFrame) -> pl.DataFrame:
    place = pl.col("step").fill_null(2**62)
    return table.filter(pl.col("split") == ALL, place == place.max().over(KEYS))


def _ranked(result: Unqover) -> pl.DataFrame:
    table = _last(result.subjects)
    at, size = pl.int_range(pl.len()).over(KEYS), pl.len().over(KEYS)
    shown = table.filter((at < ENDS) | (at >= size - ENDS))
    return shown.select(
        *HEAD, "subject", "gender", "rank", pl.col("rank").max().over(KEYS).alias("of"),
        value="gamma", low="gamma_low", high="gamma_high",
    )  # fmt: skip


def _strengths(result: Unqover) -> pl.DataFrame:
    """Panel `subject`: a point for each subject; panel `mean`: one for each attribute."""
    of_gender = pl.col("gamma_female").is_not_null()
    table = _last(result.attributes)
    means = table.with_columns(
        value=pl.when(of_gender).then("gamma_female").otherwise("strength"), panel=pl.lit("mean")
    )
    strongest = pl.col("strength").rank("ordinal", descending=True).over(KEYS) <= ROWS
    means = means.filter(strongest).sort(*KEYS, "value", descending=[False] * 3 + [True])
    key = [*KEYS, "attribute", "attribute_class"]
    towards = pl.when(pl.col("gender") == "male").then(-pl.col("gamma")).otherwise("gamma")
    points = (
        _last(result.cells)
        .join(means.select(key), on=key, how="semi", nulls_equal=True)
        .with_columns(value=towards, panel=pl.lit("subject"))
    )
    columns = (*HEAD, "panel", "attribute", "gender", "value")
    means = means.with_columns(gender=pl.when(of_gender).then(pl.lit("female")))
    return pl.concat([means.select(columns), points.select(columns)])


def _training(result: Unqover) -> pl.DataFrame:
    table = result.unqover.filter(
        pl.col("split") == ALL, pl.col("step").n_unique().over("model", "run") > 1
    )
    ends = [f"{name}{end}" for name in PANELS for end in ("", "_low", "_high")]
    return table.select(*HEAD, *ends)
