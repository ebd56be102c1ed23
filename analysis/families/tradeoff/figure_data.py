"""The table behind both figures of a trade-off."""

import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.families.tradeoff.metric import TradeOff


def tradeoff_figure_data(result: TradeOff) -> dict[str, pl.DataFrame]:
    """`tradeoff_curves` and `tradeoff_front`, of every model and run; one row per checkpoint."""
    chosen = result.choices.group_by("model", "run", "step").agg(
        pl.col("give_up").min().alias("chosen_for")
    )
    table = result.tradeoff.join(
        chosen, on=["model", "run", "step"], how="left", maintain_order="left"
    )
    return per_run("tradeoff_curves", table) | per_run("tradeoff_front", table)
