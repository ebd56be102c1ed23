"""The table of a comparison of filters: measures of all joined, beside the unfiltered."""

import polars as pl

from logitbank.analysis.debias.study import FILTERS

NONE, UNTRAINED, TRAINED = FILTERS
KEY = ("model", "run", "step")


STEREOSET = tuple(f"{name}{end}" for name in ("lms", "ss", "icat") for end in ("", "_low", "_high"))


UNQOVER = ("mu", "eta", "abs_c", "positional", "attributive", "coverage_8", "coverage_10")


_ORDER = {name: at for at, name in enumerate(FILTERS)}


NO_STEREOSET = pl.DataFrame(
    schema={
        "model": pl.String,
        "run": pl.String,
        "step": pl.Int64,
        **dict.fromkeys(("filter", "label", "language", "condition"), pl.String),
        **dict.fromkeys(STEREOSET, pl.Float64),
        "examples": pl.Int64,
        "missing": pl.Int64,
        "icat_change": pl.Float64,
        "common": pl.Int64,
    }
)
"""StereoSet's scores without a row. Over `common` examples, which the plain model without a filter
has too, the iCAT is higher than its by `icat_change`."""


def no_unqover() -> pl.DataFrame:
    texts = dict.fromkeys(("model", "run"), pl.String) | {"step": pl.Int64}
    return pl.DataFrame(
        schema={
            **texts,
            **dict.fromkeys(("category", "split"), pl.String),
            **dict.fromkeys(UNQOVER, pl.Float64),
            "missing": pl.Int64,
        }
    )


def named(table: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """With the model's own name, and its filter."""
    return (
        table.join(names, on="model", maintain_order="left")
        .with_columns(model="base")
        .select(*KEY, "filter", "label", pl.exclude(*KEY, "filter", "label", "base"))
    )


def joined(scores: pl.DataFrame, measures: pl.DataFrame) -> pl.DataFrame:
    keys = (*KEY, "filter", "label")
    # Instances that no filter was trained on, where the published parts are told apart.
    judged = (pl.col("split") == "test") | (
        (pl.col("split") == "all") & ~(pl.col("split") == "test").any().over(*keys, "category")
    )
    means = measures.filter(judged).group_by(keys, maintain_order=True).agg(pl.col(UNQOVER).mean())
    scored = scores.filter(pl.col("condition") == "plain")
    lone = means.select(keys).join(scored, on=keys, how="anti", nulls_equal=True)
    scores = pl.concat([scores, lone.with_columns(condition=pl.lit("plain"))], how="diagonal")
    table = (
        scores.join(
            means.with_columns(condition=pl.lit("plain")),
            on=[*keys, "condition"],
            how="left",
            nulls_equal=True,
        )
        .with_columns(_order=pl.col("filter").replace_strict(_ORDER))
        .sort("model", "run", "step", "language", "_order", "label", "condition", nulls_last=True)
        .select(*NO_STEREOSET.columns, *UNQOVER)
    )
    return pl.concat([table, _references(table)])


def _references(table: pl.DataFrame) -> pl.DataFrame:
    """The ideal and the random model."""
    rows = [
        {"model": name, "filter": NONE, "label": "reference", "condition": "plain",
         "lms": lms, "ss": 50.0, "icat": lms}
        for name, lms in (("ideal model", 100.0), ("random model", 50.0))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(table.schema))
