"""Small frames with the columns of a scan whose prompts own several pieces."""

from collections.abc import Mapping, Sequence

import polars as pl


def piece_frame(
    prompts: Mapping[str, Sequence[tuple[float, int, int]]],
    *,
    step: int | None = 0,
    model: str = "toy",
    run: str = "main",
    columns: Mapping[str, Mapping[str, object]] | None = None,
) -> pl.DataFrame:
    """Rows of (logprob, rank, ties) per piece; `columns` gives each prompt's own columns."""
    rows = [
        {
            "model": model,
            "run": run,
            "step": step,
            "prompt_id": name,
            "piece": piece,
            "logprob": logprob,
            "rank": rank,
            "ties": ties,
            "exact": True,
            **((columns or {}).get(name, {})),
        }
        for name, pieces in prompts.items()
        for piece, (logprob, rank, ties) in enumerate(pieces)
    ]
    return pl.DataFrame(rows, schema_overrides={"step": pl.Int64, "piece": pl.Int32})
