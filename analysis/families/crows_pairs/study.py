"""From banks to CrowS-Pairs, in one call."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs, crows_pairs_metric
from logitbank.analysis.families.crows_pairs.summary import crows_pairs_summary
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.expected import expected_pieces, expected_rows
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.frames.sources import frame_of
from logitbank.analysis.harness import Export, save_exports
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study


def crows_pairs(
    banks: Banks,
    *,
    prompts: str = "crows-pairs",
    models: Sequence[str] | None = None,
    out: str | Path | None = None,
    paper: Paper = PAPER,
    save_results: str | Path | None = None,
    partial: bool = False,
) -> Study[CrowsPairs]:
    """CrowS-Pairs of the checkpoints in banks; parameters are those of `logitbank.lambada`.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, or what `crows_pairs_metric` refuses.
    """
    opened = open_banks(banks, models=models, prompts=prompts)
    frame = frame_of(opened, prompts, models)
    result = crows_pairs_metric(frame, expected=expected_pieces(opened, prompts))
    if save_results is not None:
        expected = expected_rows(opened, prompts, ("pair", "score_kind", "bias_type"))
        save_exports(
            [*_exports(result, expected)],
            folder=Path(save_results),
            partial=partial,
        )
    title = f"CrowS-Pairs during training: {models_of(result)}"
    return finish(
        result,
        crows_pairs_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=opened,
        prompts=[prompts],
        models=models,
    )


def _exports(result: CrowsPairs, expected: pl.DataFrame) -> Iterator[Export]:
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
        yield Export(name + end, rows, metrics)
