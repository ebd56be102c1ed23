"""What a comparison of two banks gives."""

from dataclasses import dataclass

import polars as pl

from logitbank.analysis.results.tables import Result


@dataclass(frozen=True, slots=True)
class Comparison(Result):
    """What `compare` found: tidy tables, documented in docs/tables.md."""

    logits: pl.DataFrame
    """One row for each checkpoint and query set that both banks have rows of."""
    metrics: pl.DataFrame
    """Values of metrics by either bank, over what both have, and their difference."""
    only: pl.DataFrame
    """Checkpoints and query sets of which one bank has rows that the other lacks."""
    unmeasured: tuple[str, ...] = ()
    """Prompt sets of both banks that `metrics` has no row of."""
