"""Metrics, tests, figures and reports from the frames of a bank. Knows no model and no engine."""

from logitbank.analysis.correlation import pearson, pearson_matrix, variation
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
from logitbank.analysis.fluctuation import Fluctuation, fluctuation
from logitbank.analysis.fluctuation_data import fluctuation_figure_data
from logitbank.analysis.fluctuation_figures import fluctuation_figures
from logitbank.analysis.fluctuation_summary import fluctuation_summary
from logitbank.analysis.frequencies import corpus_frequencies
from logitbank.analysis.report import write_report, write_tables
from logitbank.analysis.score_table import as_scores, published_table, write_scores
from logitbank.analysis.stats import (
    benjamini_hochberg,
    mann_whitney,
    seed_mean,
    wilcoxon,
)
from logitbank.analysis.stereoset import StereoSet, stereoset
from logitbank.analysis.stereoset_data import stereoset_figure_data
from logitbank.analysis.stereoset_figures import stereoset_figures
from logitbank.analysis.stereoset_files import read_gold, read_predictions, write_predictions
from logitbank.analysis.stereoset_scores import as_candidates
from logitbank.analysis.stereoset_summary import stereoset_summary

__all__ = [
    "Fairness",
    "FairnessLabels",
    "Fluctuation",
    "StereoSet",
    "as_candidates",
    "as_scores",
    "benjamini_hochberg",
    "corpus_frequencies",
    "fairness",
    "fairness_change",
    "fairness_summary",
    "figure_data",
    "figures",
    "fluctuation",
    "fluctuation_figure_data",
    "fluctuation_figures",
    "fluctuation_summary",
    "jsd_parts",
    "mann_whitney",
    "pearson",
    "pearson_matrix",
    "published_table",
    "read_gold",
    "read_predictions",
    "scaled",
    "seed_mean",
    "stereoset",
    "stereoset_figure_data",
    "stereoset_figures",
    "stereoset_summary",
    "three_way_correct",
    "unique_maximum",
    "variation",
    "vocabulary_rank",
    "wilcoxon",
    "write_predictions",
    "write_report",
    "write_scores",
    "write_tables",
]
