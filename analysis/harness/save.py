"""Scores of a bank for others to read: which, how many, and in what forms."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.harness.records import write_records
from logitbank.analysis.harness.write import Export, write_harness
from logitbank.errors import UsageError
from logitbank.store import Readable
from logitbank.wording import checkpoint_name, counted


def save_exports(
    exports: Sequence[Export],
    *,
    analysis: str,
    banks: Sequence[Readable],
    results: Path | None,
    records: Path | None,
    partial: bool,
) -> None:
    """Write what is known of several tasks, with their sample counts.

    Parameters
    ----------
    analysis
        What the numbers are called together.
    banks
        What they are of.
    results
        Folder for result files as of `write_harness`.
    records
        Folder for records as of `write_records`.

    Raises
    ------
    UsageError
        A checkpoint lacks some of what was asked, and `partial` data are not to be written; or as
        `write_harness`.
    """
    for export in exports if not partial else ():
        _refuse_partial(export, with_release=records is not None)
    if results is not None:
        counts = {"samples": "effective", "original": "original", "missing": "missing"}
        for export in exports:
            write_harness(export.table, results, task=export.task, metrics=export.metrics, **counts)
    if records is not None:
        write_records(exports, records, analysis=analysis, banks=banks)


def _refuse_partial(export: Export, *, with_release: bool) -> None:
    rows = export.table.filter(pl.col("step").is_not_null() | with_release)
    incomplete = rows.filter(pl.col("missing") > 0)
    if len(incomplete):
        row = incomplete.row(0, named=True)
        raise UsageError(
            f"{export.task}: {row['original'] - row['missing']:,} of "
            f"{counted(row['original'], 'sample')} are scored at {checkpoint_name(row)} "
            f"({len(incomplete):,} of {counted(len(rows), 'checkpoint')} are partial); finish the "
            "extraction, or save what there is with --partial"
        )
