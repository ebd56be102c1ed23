"""From banks and tables to everything that fluctuation has to say, in one call."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.fluctuation.frequencies import corpus_frequencies
from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation_metric
from logitbank.analysis.families.fluctuation.scores import (
    as_scores,
    check_target,
    write_scores,
)
from logitbank.analysis.families.fluctuation.sources import all_scores
from logitbank.analysis.families.fluctuation.summary import fluctuation_summary
from logitbank.analysis.frames.apart import Banks
from logitbank.analysis.frames.table_files import read_table
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name, counted


def fluctuation(
    banks: Banks,
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    out: str | Path | None = None,
    paper: Paper = PAPER,
    plateaus: Sequence[int] | None = None,
    frequencies: str | Path | None = None,
    corpus_sizes: str | Path | None = None,
    professions: Sequence[str] | None = None,
    save_scores: str | Path | None = None,
    partial: bool = False,
) -> Study[Fluctuation]:
    """Analyse fluctuation in banks and tables of scores and, with `out`, write what is found.

    Parameters
    ----------
    banks
        A bank or several: folders, URLs, or what is open. Score tables in the published format
        (.csv or .parquet) may be among them; all are analysed together.
    prompts
        Name of the banks' prompt set; by default `professions`, or the only one that has its
        columns.
    frequencies, corpus_sizes
        Tables for the frequency correlation, as `corpus_frequencies` reads them.
    save_scores
        File to write the scores to, in the published format.
    partial
        Write them where checkpoints lack some of what was asked, too.

    `docs/tables.md` documents these tables. Other parameters are those of
    `logitbank.analysis.fluctuation_metric`.

    Raises
    ------
    LogitbankError
        A source that is not there, or what `fluctuation_metric` refuses.
    """
    if save_scores is not None:
        save_scores = Path(save_scores)
        check_target(save_scores)
    words = _frequencies(frequencies, corpus_sizes)
    read = all_scores(banks, prompts, models)
    result = fluctuation_metric(
        read.frames,
        plateaus=plateaus,
        frequencies=words,
        professions=professions,
        expected=read.expected,
    )
    if save_scores is not None:
        if not partial:
            _refuse_partial(result.checkpoints)
        write_scores(pl.concat(map(as_scores, read.frames)), save_scores)
    return finish(
        result,
        fluctuation_summary(result),
        title=f"Fluctuation during pre-training: {models_of(result)}",
        out=out,
        paper=paper,
        banks=read.banks,
        prompts=[read.prompts],
        models=models,
        files=read.files,
    )


def _refuse_partial(checkpoints: pl.DataFrame) -> None:
    """Of checkpoints that have any profession; others need not have been meant to be there."""
    key = ["model", "run", "step"]
    begun = checkpoints.filter((pl.col("professions").sum() > 0).over(key))
    incomplete = begun.filter(pl.col("missing") > 0)
    if len(incomplete):
        row = incomplete.row(0, named=True)
        whole, partial = row["professions"] + row["missing"], incomplete.select(key).n_unique()
        raise UsageError(
            f"{row['professions']:,} of {whole:,} professions are scored at {checkpoint_name(row)} "
            f"“{row['verb']}” ({partial:,} of {counted(begun.select(key).n_unique(), 'checkpoint')}"
            " are partial); finish the extraction, or save what there is with --partial"
        )


def _frequencies(table: str | Path | None, sizes: str | Path | None) -> pl.DataFrame | None:
    if table is None:
        if sizes is not None:
            raise UsageError(f"corpus sizes {sizes} weigh frequencies; give --frequencies too")
        return None
    rows = read_table(Path(table))
    words = None if sizes is None else read_table(Path(sizes))
    try:
        return corpus_frequencies(rows, words)
    except UsageError as error:
        raise UsageError(f"{table}: {error}") from error
