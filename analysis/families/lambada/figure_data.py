"""The table behind the figure of LAMBADA, one row per point drawn."""

import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.families.lambada.metric import Lambada


def lambada_figure_data(result: Lambada) -> dict[str, pl.DataFrame]:
    """`lambada`, of every model and run."""
    return per_run("lambada", result.lambada)
