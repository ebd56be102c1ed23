"""What the analyses of a report say, in the lines after it is written."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from logitbank.cli.screen.tables import one_line, out, say

if TYPE_CHECKING:
    from logitbank.analysis.results.words import Summary


def print_findings(findings: "Mapping[str, Summary]") -> None:
    """The first findings of each analysis below its title, as many as the page has unfolded.

    And all that they are without.
    """
    from logitbank.analysis.report.page import FINDINGS

    for title, summary in findings.items():
        if summary:
            say(f"[bold]{one_line(title)}[/bold]", to=out)
        for line in (*summary.findings[:FINDINGS], *summary.left_out):
            say(f"  {one_line(line)}", to=out)
