"""The page of one study: what `--out` of an analysis writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.analysis.family import family_of
from logitbank.analysis.report.origin import bank_name, origin_of
from logitbank.analysis.report.page import write_page
from logitbank.analysis.report.part import part_of
from logitbank.analysis.report.words import GENERAL
from logitbank.analysis.results.study import Study
from logitbank.store import Bank


def write_report(
    path: Path | str,
    study: Study[Any],
    *,
    title: str,
    about: str = "",
    banks: Sequence[Bank] = (),
    files: Sequence[pl.DataFrame] = (),
    beside: bool = False,
) -> None:
    """Write the page of a study: a page as of `report`, with this one analysis.

    Opening it needs no network. It is replaced at once when it is complete.

    Parameters
    ----------
    about
        What the study asks; by default what its family of metrics asks.
    banks, files
        Where the numbers come from: banks, and tables about what else was read.
    beside
        The study's tables and figures are files in folders of these names beside the page.
    """
    family = family_of(study.result)
    part = part_of(
        study,
        id="findings" if family is None else family.name,
        title="Findings" if family is None else family.title,
        about=about or ("" if family is None else family.asks),
        beside=beside,
    )
    write_page(
        path,
        title=title,
        lead=_lead(banks, files),
        parts=[part],
        origin=origin_of(banks, files),
        cautions=[*GENERAL, *study.summary.cautions],
    )


def _lead(banks: Sequence[Bank], files: Sequence[pl.DataFrame]) -> str:
    names = ", ".join(bank_name(bank) for bank in banks)
    read = [f"the bank{'s' if len(banks) > 1 else ''} {names}"] if banks else []
    read += ["the files that are named below"] if files else []
    return f"From {' and '.join(read)}." if read else ""
