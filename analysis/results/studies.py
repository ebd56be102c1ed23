"""From banks to everything that a family of metrics has to say: one call per command."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.static import figures
from logitbank.analysis.families.fairness.metric import Fairness, fairness
from logitbank.analysis.families.fairness.significance import Unit
from logitbank.analysis.families.fairness.summary import change_sentence, fairness_summary
from logitbank.analysis.families.fluctuation.figure_data import figures_of_report
from logitbank.analysis.families.fluctuation.frequencies import corpus_frequencies
from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation
from logitbank.analysis.families.fluctuation.scores import check_target, write_scores
from logitbank.analysis.families.fluctuation.summary import fluctuation_summary
from logitbank.analysis.frames.apart import open_banks
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.expressions import Ties
from logitbank.analysis.frames.pieces import checkpoint_name
from logitbank.analysis.frames.sources import FAIRNESS, all_scores, bank_frames, chosen_prompts
from logitbank.analysis.frames.table_files import read_table
from logitbank.analysis.frames.vocab_limit import check_vocab_limit
from logitbank.analysis.results.study import Study, write_study
from logitbank.errors import UsageError
from logitbank.store import Readable
from logitbank.wording import counted

__all__ = ["Study", "fairness_study", "fluctuation_study"]


def fairness_study(
    banks: Sequence[Path | Readable],
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    out: Path | None = None,
    vocab_limit: bool = False,
    ties: Ties = "competition",
    unit: Unit = "prompt",
    bootstrap: int = 1000,
    compare: tuple[str, str] | None = None,
    change: tuple[int, int] | None = None,
) -> Study[Fairness]:
    """Analyse fairness in one or several banks and, with `out`, write tables, figures and report.

    Parameters
    ----------
    banks
        Folders of banks; their models are analysed together.
    prompts
        Name of the prompt set; by default `winobias`, or the only one that has its columns.
    change
        Two steps between which the fairness change is told.

    Other parameters are those of `logitbank.analysis.families.fairness.metric.fairness`.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, what `fairness` refuses, or a `vocab_limit` that the
        banks do not know or an option is beyond.
    """
    opened = open_banks(banks)
    prompts = chosen_prompts(opened, prompts, FAIRNESS)
    if vocab_limit:
        check_vocab_limit(opened, prompts, models)
    result = fairness(
        bank_frames(opened, prompts, models),
        vocab_limit=vocab_limit,
        ties=ties,
        unit=unit,
        bootstrap=bootstrap,
        compare=compare,
        expected=expected_rows(opened, prompts, ("prompt_id", "order_seed")),
    )
    summary = fairness_summary(result)
    if change is not None:
        summary[:0] = [
            f"{rows['model'][0]} {rows['run'][0]}: {change_sentence(rows, *change)}"
            for rows in result.gap.partition_by("model", "run", maintain_order=True)
        ]
    report = None
    if out is not None:
        named = ", ".join(result.checkpoints["model"].unique().sort().to_list())
        report = write_study(
            out,
            result,
            title=f"Fairness during training: {named} on {prompts}",
            summary=summary,
            figures=figures(result),
            provenance=pl.concat([bank.info() for bank in opened], how="diagonal_relaxed"),
        )
    return Study(result, tuple(summary), report)


def fluctuation_study(
    sources: Sequence[Path | Readable],
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    out: Path | None = None,
    plateaus: Sequence[int] | None = None,
    frequencies: Path | None = None,
    corpus_sizes: Path | None = None,
    professions: Sequence[str] | None = None,
    save_scores: Path | None = None,
    partial: bool = False,
) -> Study[Fluctuation]:
    """Analyse fluctuation in banks and tables of scores and, with `out`, write what is found.

    Parameters
    ----------
    sources
        Folders of banks, and score tables in the published format (.csv or .parquet); all are
        analysed together.
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
    `logitbank.analysis.families.fluctuation.metric.fluctuation`.

    Raises
    ------
    LogitbankError
        A source that is not there, or what `fluctuation` refuses.
    """
    if save_scores is not None:
        check_target(save_scores)
    counted = _frequencies(frequencies, corpus_sizes)
    scores, provenance, asked = all_scores(sources, prompts, models)
    result = fluctuation(
        scores, plateaus=plateaus, frequencies=counted, professions=professions, expected=asked
    )
    if save_scores is not None:
        if not partial:
            _refuse_partial(result.checkpoints)
        write_scores(scores, save_scores)
    summary = fluctuation_summary(result)
    report = None
    if out is not None:
        named = ", ".join(result.checkpoints["model"].unique().sort().to_list())
        shown, note = figures_of_report(result)
        report = write_study(
            out,
            result,
            title=f"Fluctuation during pre-training: {named}",
            summary=[*summary, *note],
            figures=figures(result),
            provenance=provenance,
            in_report=shown.__contains__,
        )
    return Study(result, tuple(summary), report)


def _refuse_partial(checkpoints: pl.DataFrame) -> None:
    """Of checkpoints that have any profession; others need not have been meant to be there."""
    key = ["model", "run", "step"]
    begun = checkpoints.filter((pl.col("professions").sum() > 0).over(key))
    lacking = begun.filter(pl.col("missing") > 0)
    if len(lacking):
        row = lacking.row(0, named=True)
        whole, partial = row["professions"] + row["missing"], lacking.select(key).n_unique()
        raise UsageError(
            f"{row['professions']:,} of {whole:,} professions are scored at {checkpoint_name(row)} "
            f"“{row['verb']}” ({partial:,} of {counted(begun.select(key).n_unique(), 'checkpoint')}"
            " are partial); finish the extraction, or save what there is with --partial"
        )


def _frequencies(table: Path | None, sizes: Path | None) -> pl.DataFrame | None:
    if table is None:
        if sizes is not None:
            raise UsageError(f"corpus sizes {sizes} weigh frequencies; give --frequencies too")
        return None
    rows, words = read_table(table), None if sizes is None else read_table(sizes)
    try:
        return corpus_frequencies(rows, words)
    except UsageError as error:
        raise UsageError(f"{table}: {error}") from error
