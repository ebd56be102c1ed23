"""Metrics, tests, figures and reports from the frames of a bank. Knows no model and no engine."""

from logitbank.analysis.batches import batches
from logitbank.analysis.change_points import ChangePoint, change_point
from logitbank.analysis.correlation import pearson, pearson_matrix, variation
from logitbank.analysis.crows_pairs import CrowsPairs, crows_pairs
from logitbank.analysis.evaluation_data import evaluation_figure_data
from logitbank.analysis.evaluation_figures import evaluation_figures
from logitbank.analysis.expected import expected_pieces, expected_rows
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
from logitbank.analysis.harness import read_harness
from logitbank.analysis.harness_export import write_harness
from logitbank.analysis.interactive import interactive_figures
from logitbank.analysis.lambada import Lambada, lambada, lambada_examples
from logitbank.analysis.option_scores import OptionScores, option_scores
from logitbank.analysis.prompt_scores import PromptScores, prompt_scores
from logitbank.analysis.prompt_view import differences, movements
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
from logitbank.analysis.stereotype_accuracy import StereotypeAccuracy, stereotype_accuracy
from logitbank.analysis.tradeoff import TradeOff, tradeoff
from logitbank.analysis.tradeoff_summary import tradeoff_summary
from logitbank.analysis.unqover import Unqover, unqover
from logitbank.analysis.unqover_data import unqover_figure_data
from logitbank.analysis.unqover_figures import unqover_figures
from logitbank.analysis.unqover_instances import unqover_instances
from logitbank.analysis.unqover_summary import unqover_summary
from logitbank.analysis.winobias_em import WinobiasEm, winobias_em

__all__ = [
    "ChangePoint",
    "CrowsPairs",
    "Fairness",
    "FairnessLabels",
    "Fluctuation",
    "Lambada",
    "OptionScores",
    "PromptScores",
    "StereoSet",
    "StereotypeAccuracy",
    "TradeOff",
    "Unqover",
    "WinobiasEm",
    "as_candidates",
    "as_scores",
    "batches",
    "benjamini_hochberg",
    "change_point",
    "corpus_frequencies",
    "crows_pairs",
    "differences",
    "evaluation_figure_data",
    "evaluation_figures",
    "expected_pieces",
    "expected_rows",
    "fairness",
    "fairness_change",
    "fairness_summary",
    "figure_data",
    "figures",
    "fluctuation",
    "fluctuation_figure_data",
    "fluctuation_figures",
    "fluctuation_summary",
    "interactive_figures",
    "jsd_parts",
    "lambada",
    "lambada_examples",
    "mann_whitney",
    "movements",
    "option_scores",
    "pearson",
    "pearson_matrix",
    "prompt_scores",
    "published_table",
    "read_gold",
    "read_harness",
    "read_predictions",
    "scaled",
    "seed_mean",
    "stereoset",
    "stereoset_figure_data",
    "stereoset_figures",
    "stereoset_summary",
    "stereotype_accuracy",
    "three_way_correct",
    "tradeoff",
    "tradeoff_summary",
    "unique_maximum",
    "unqover",
    "unqover_figure_data",
    "unqover_figures",
    "unqover_instances",
    "unqover_summary",
    "variation",
    "vocabulary_rank",
    "wilcoxon",
    "winobias_em",
    "write_harness",
    "write_predictions",
    "write_report",
    "write_scores",
    "write_tables",
]
