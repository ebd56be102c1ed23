"""The tables behind the figures of CrowS-Pairs, one row per point drawn."""

import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.analysis.frames.pieces import CHECKPOINT


def crows_pairs_figure_data(result: CrowsPairs) -> dict[str, pl.DataFrame]:
    """`crows_pairs` and `crows_pairs_types`, of every model and run."""
    types = per_run("crows_pairs_types", result.crows_pairs)
    return per_run("crows_pairs", _crows_pairs(result)) | types


def _crows_pairs(result: CrowsPairs) -> pl.DataFrame:
    """Curves of the three overall scores."""
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
            series=pl.lit(name),
            value=column,
            low="low" if column == "score" else nan,
            high="high" if column == "score" else nan,
        )
        for column, name in names.items()
    ]
    return pl.concat(curves)
