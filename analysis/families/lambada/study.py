"""From banks to LAMBADA, in one call."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.lambada.metric import Lambada, lambada_metric
from logitbank.analysis.families.lambada.summary import lambada_summary
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.expected import expected_pieces
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.frames.shared import shared_frames
from logitbank.analysis.frames.sources import frame_of
from logitbank.analysis.harness import Export, save_exports
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study


def lambada(
    banks: Banks,
    *,
    prompts: str = "lambada",
    models: Sequence[str] | None = None,
    out: str | Path | None = None,
    paper: Paper = PAPER,
    save_results: str | Path | None = None,
    partial: bool = False,
) -> Study[Lambada]:
    """LAMBADA accuracy and perplexity of the checkpoints in banks.

    Parameters
    ----------
    banks
        A bank or several, which are analysed together: folders, URLs, or what is open.
    prompts
        Name of the prompt set.
    models
        Only these.
    out
        Folder for tables, figures and the report.
    paper
        How the figures look.
    save_results
        Folder for result files in the layout of lm-evaluation-harness, one per checkpoint.
    partial
        Save results of checkpoints that lack some of what was asked, too.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, what `lambada_metric` refuses, or results to save
        that are partial.
    """
    opened = open_banks(banks, models=models, prompts=prompts)
    frame = shared_frames(prompts) or frame_of(opened, prompts, models)
    result = lambada_metric(frame, expected=expected_pieces(opened, prompts))
    if save_results is not None:
        save_exports(
            [*_exports(result)],
            folder=Path(save_results),
            partial=partial,
        )
    title = f"LAMBADA during training: {models_of(result)}"
    return finish(
        result,
        lambada_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=opened,
        prompts=[prompts],
        models=models,
    )


def _exports(result: Lambada) -> Iterator[Export]:
    """One task, with a row for each checkpoint that has begun."""
    table = result.checkpoints.join(
        result.lambada, on=CHECKPOINT, how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(
        original=pl.col("prompts") + pl.col("missing"),
        effective=pl.col("examples").fill_null(0),
        acc_low="low",
        acc_high="high",
    )
    yield Export("lambada_openai", table, {"acc": "acc", "perplexity": "perplexity"})
