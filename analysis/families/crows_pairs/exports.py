"""What of CrowS-Pairs goes into result files, and how much it is.

Rows have `effective` samples, which their numbers are over, of the `original` ones that were asked,
of which some may be `missing`.
"""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.harness.write import Export


def crows_pairs_exports(
    result: CrowsPairs, expected: pl.DataFrame, prompts: str
) -> Iterator[Export]:
    """Causal scores under the harness's task names, masked ones under a name of their own.

    `expected` has the columns model, pair, score_kind and bias_type of what each model was asked.
    """
    kinds = ["score_kind", "bias_type"]
    every = pl.concat([expected.with_columns(bias_type=pl.lit(ALL)), expected]).unique()
    whole = every.group_by("model", *kinds).agg(original=pl.col("pair").n_unique().cast(pl.Int64))
    table = (
        result.checkpoints.select(CHECKPOINT)
        .join(whole, on="model")
        .join(result.crows_pairs, on=[*CHECKPOINT, *kinds], how="left", nulls_equal=True)
        .with_columns(
            effective=pl.col("pairs").fill_null(0),
            pct_stereotype=pl.col("score") / 100,
            pct_stereotype_stderr=pl.col("score_stderr") / 100,
            pct_stereotype_low=pl.col("low") / 100,
            pct_stereotype_high=pl.col("high") / 100,
        )
        .with_columns(missing=pl.col("original") - pl.col("effective"))
        .sort(*kinds, *CHECKPOINT, nulls_last=True)
    )
    for (kind, bias_type), rows in table.group_by(kinds, maintain_order=True):
        name = "crows_pairs_english" if kind == "sentence" else "crows_pairs_masked"
        end = "" if bias_type == ALL else "_" + str(bias_type).replace("-", "_")
        metrics = {name: name for name in ("pct_stereotype", "likelihood_diff")}
        yield Export(name + end, prompts, rows, metrics)
