"""The findings of LAMBADA: those of its measures, then ties and bounds."""

from logitbank.analysis.families.lambada import FAMILY
from logitbank.analysis.finding import Finding
from logitbank.analysis.results import measured
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.series import totals

TOTALS = {
    "tied": "last words share the largest logit with another token and count as wrong (over all "
    "checkpoints)",
    "inexact": "ranks are bounds, counted among rounded scores (over all checkpoints)",
}


def findings(result: Measured) -> list[Finding]:
    """The common findings, then how many last words are tied."""
    return [*measured.findings(FAMILY, result), *totals(result.further["ties"], TOTALS)]
