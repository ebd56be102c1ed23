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


def pair_frame(
    *pairs: tuple[float, float, str, str],
    step: int | None = 0,
    kind: str = "sentence",
    pieces: int = 2,
) -> pl.DataFrame:
    """Each pair is the sums of `more` and `less`, its direction and its bias type."""
    prompts, columns = {}, {}
    for number, (more, less, direction, bias_type) in enumerate(pairs):
        for side, total in (("more", more), ("less", less)):
            name = f"{number}-{side}"
            prompts[name] = [(total / pieces, 5, 0)] * pieces
            columns[name] = {
                "pair": number, "side": side, "direction": direction, "bias_type": bias_type,
                "score_kind": kind,
            }  # fmt: skip
    return piece_frame(prompts, step=step, columns=columns)
