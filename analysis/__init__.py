"""Metrics, tests, figures and reports from the frames of a bank. Knows no model and no engine."""

from logitbank.analysis.expressions import (
    jsd_parts,
    scaled,
    three_way_correct,
    unique_maximum,
    vocabulary_rank,
)
from logitbank.analysis.fairness import Fairness, fairness, fairness_change
from logitbank.analysis.fairness_cube import FairnessLabels
from logitbank.analysis.fairness_summary import fairness_summary
from logitbank.analysis.figure_data import figure_data
from logitbank.analysis.figures import figures
from logitbank.analysis.report import write_report, write_tables
from logitbank.analysis.stats import (
    benjamini_hochberg,
    mann_whitney,
    seed_mean,
    wilcoxon,
)

__all__ = [
    "Fairness",
    "FairnessLabels",
    "benjamini_hochberg",
    "fairness",
    "fairness_change",
    "fairness_summary",
    "figure_data",
    "figures",
    "jsd_parts",
    "mann_whitney",
    "scaled",
    "seed_mean",
    "three_way_correct",
    "unique_maximum",
    "vocabulary_rank",
    "wilcoxon",
    "write_report",
    "write_tables",
]
