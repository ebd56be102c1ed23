"""The findings of distances: those of its measures."""

from logitbank.analysis.families.distance import FAMILY
from logitbank.analysis.families.distance.metric import Distances
from logitbank.analysis.finding import Finding
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.measured import findings as default

STATED = ("entropy", "js_previous", "js_last", "kl_runs")
"""The measures with a sentence; all are in the table."""


def findings(result: Distances) -> list[Finding]:
    """Entropy, and one distance from each kind of reference."""
    return default(
        FAMILY, Measured(result.measures.filter(result.measures["measure"].is_in(STATED)))
    )
