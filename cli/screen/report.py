"""Output of `report` and `demo`: the first findings of each section of a page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from logitbank.analysis.report.sections import FINDINGS, Section
from logitbank.cli.options import address
from logitbank.cli.output import print_findings, print_title, say
from logitbank.cli.screen.progress import busy, count_progress
from logitbank.store import Bank


def print_report(banks: Sequence[Path | Bank], write: Callable[..., Path]) -> dict[str, str]:
    """Print the first findings of each section of a page, and return problems by section.

    `write` writes the page: `report` with its arguments, but for `progress` and `found`.
    """
    sections: list[Section] = []
    names = ", ".join(address(bank) if isinstance(bank, Path) else bank.address for bank in banks)
    with busy(f"reading {names}"), count_progress() as progress:
        path = write(progress=progress.about, found=sections.append)
    for section in sections:
        if section.study is not None:
            print_title(section.title)
            print_findings(section.study, most=FINDINGS)
    say(f"Report: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return {section.title: section.problem for section in sections if section.problem}
