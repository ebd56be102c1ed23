"""The end of every study: tables, figures and report, where a folder is given."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import polars as pl

from logitbank.analysis.drawing.figures import save_figures
from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.frames.expected import left_out_sentences
from logitbank.analysis.report.study import write_report
from logitbank.analysis.results.files import require_outside, write_tables
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.tables import Result
from logitbank.analysis.results.words import Summary
from logitbank.store import Bank

R = TypeVar("R", bound=Result)


def finish(
    result: R,
    summary: Summary,
    *,
    title: str,
    out: str | Path | None,
    paper: Paper = PAPER,
    about: str = "",
    banks: Sequence[Bank] = (),
    files: Sequence[pl.DataFrame] = (),
    prompts: Collection[str] = (),
    models: Collection[str] | None = None,
    steps: Collection[int | None] | None = None,
) -> Study[R]:
    """The study of a result and, with `out`, its tables, figures and page in that folder.

    `paper` says how the figures look; of `prompts`, `models` and `steps`, those that were asked
    for, it is said which checkpoints have no row or no score. Other parameters are those of
    `write_report`.

    Raises
    ------
    UsageError
        The folder is a bank, or lies in one.
    """
    left_out = left_out_sentences(banks, prompts, models, steps)
    summary = replace(summary, left_out=(*summary.left_out, *left_out))
    study = Study(result, summary)
    if out is None:
        return study
    out = Path(out)
    require_outside(out)
    out.mkdir(parents=True, exist_ok=True)
    write_tables(result, out / "tables", "csv")
    save_figures(result, out / "figures", paper)
    report = out / "report.html"
    write_report(report, study, title=title, about=about, banks=banks, files=files, beside=True)
    return replace(study, report=report)


def models_of(result: Result) -> str:
    """The models that a result is about, for a title."""
    tables = [table for table in result.tables().values() if "model" in table.columns]
    return ", ".join(sorted({name for table in tables for name in table["model"].unique()}))
