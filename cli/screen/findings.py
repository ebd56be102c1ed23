"""What the analyses of a report say, in the lines after it is written."""

from collections.abc import Mapping, Sequence

from logitbank.cli.screen.tables import one_line, out, say


def print_findings(findings: Mapping[str, Sequence[str]]) -> None:
    """The first findings of each analysis below its title, as many as the page has unfolded."""
    from logitbank.analysis.report.page import FINDINGS

    for title, lines in findings.items():
        if lines:
            say(f"[bold]{one_line(title)}[/bold]", to=out)
        for line in lines[:FINDINGS]:
            say(f"  {one_line(line)}", to=out)
