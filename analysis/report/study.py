"""The page of one study, beside its tables and charts as files."""

from pathlib import Path

from logitbank.analysis.report.origin import bank_name, page_origin
from logitbank.analysis.report.page import Page, write_page
from logitbank.analysis.report.sections import Section, Shown


def write_study(path: Path | str, study: Shown) -> None:
    """Write the page of a study whose folders `tables` and `charts` are beside it."""
    section = Section(
        id=study.family or "findings",
        title=study.heading,
        description=study.description,
        study=study,
    )
    sources = [f"bank {bank_name(bank)}" for bank in study.banks]
    sources += ["the files listed below"] if study.files else []
    page = Page(
        title=study.title,
        lead=f"Source: {', '.join(sources)}." if sources else "",
        sections=[section],
        origin=page_origin(study.banks, files=study.files),
        has_files=True,
    )
    write_page(path, page)
