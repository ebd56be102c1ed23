"""What of LAMBADA goes into result files, and how much it is.

Rows have `effective` samples, which their numbers are over, of the `original` ones that were asked,
of which some may be `missing`.
"""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.harness.write import Export


def lambada_exports(result: Lambada, prompts: str) -> Iterator[Export]:
    """One task, with a row for each checkpoint that has begun."""
    table = result.checkpoints.join(
        result.lambada, on=CHECKPOINT, how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(
        original=pl.col("prompts") + pl.col("missing"),
        effective=pl.col("examples").fill_null(0),
        acc_low="low",
        acc_high="high",
    )
    yield Export("lambada_openai", prompts, table, {"acc": "acc", "perplexity": "perplexity"})
