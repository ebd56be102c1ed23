"""Metrics, tests, figures and reports from the frames of a bank. Knows no model and no engine."""

from logitbank.analysis.drawing.figures import figure_data, figures, interactive_figures
from logitbank.analysis.families.crows_pairs.metric import CrowsPairs, crows_pairs_metric
from logitbank.analysis.families.curves.metric import Curves, curves_metric
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.metric import Fairness, fairness_change, fairness_metric
from logitbank.analysis.families.fairness.summary import fairness_summary
from logitbank.analysis.families.fluctuation.frequencies import corpus_frequencies
from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation_metric
from logitbank.analysis.families.fluctuation.scores import as_scores, published_table, write_scores
from logitbank.analysis.families.fluctuation.summary import fluctuation_summary
from logitbank.analysis.families.lambada.metric import Lambada, lambada_examples, lambada_metric
from logitbank.analysis.families.layers.metric import Layers, layers_metric
from logitbank.analysis.families.options.metric import OptionScores, option_scores
from logitbank.analysis.families.stereoset.files import read_predictions, write_predictions
from logitbank.analysis.families.stereoset.gold import read_gold
from logitbank.analysis.families.stereoset.metric import StereoSet, stereoset_metric
from logitbank.analysis.families.stereoset.scores import as_candidates
from logitbank.analysis.families.stereoset.summary import stereoset_summary
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy, stereotype_metric
from logitbank.analysis.families.stereotype.referents import WinobiasEm, winobias_em
from logitbank.analysis.families.tradeoff.metric import TradeOff, tradeoff_metric
from logitbank.analysis.families.tradeoff.summary import tradeoff_summary
from logitbank.analysis.families.unqover.instances import unqover_instances
from logitbank.analysis.families.unqover.metric import Unqover, unqover_metric
from logitbank.analysis.families.unqover.summary import unqover_summary
from logitbank.analysis.frames.batches import batches
from logitbank.analysis.frames.expected import expected_pieces, expected_rows
from logitbank.analysis.frames.expressions import (
    jsd_parts,
    scaled,
    three_way_correct,
    unique_maximum,
    vocabulary_rank,
)
from logitbank.analysis.harness.read import read_harness
from logitbank.analysis.harness.write import write_harness
from logitbank.analysis.prompts.scores import PromptScores, prompt_scores
from logitbank.analysis.prompts.view import differences, movements
from logitbank.analysis.report.study import write_report
from logitbank.analysis.results.files import write_tables
from logitbank.analysis.stats.change_points import ChangePoint, change_point
from logitbank.analysis.stats.correlation import pearson, pearson_matrix, variation
from logitbank.analysis.stats.significance import (
    benjamini_hochberg,
    mann_whitney,
    seed_mean,
    wilcoxon,
)

__all__ = [
    "ChangePoint",
    "CrowsPairs",
    "Curves",
    "Fairness",
    "FairnessLabels",
    "Fluctuation",
    "Lambada",
    "Layers",
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
    "crows_pairs_metric",
    "curves_metric",
    "differences",
    "expected_pieces",
    "expected_rows",
    "fairness_change",
    "fairness_metric",
    "fairness_summary",
    "figure_data",
    "figures",
    "fluctuation_metric",
    "fluctuation_summary",
    "interactive_figures",
    "jsd_parts",
    "lambada_examples",
    "lambada_metric",
    "layers_metric",
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
    "stereoset_metric",
    "stereoset_summary",
    "stereotype_metric",
    "three_way_correct",
    "tradeoff_metric",
    "tradeoff_summary",
    "unique_maximum",
    "unqover_instances",
    "unqover_metric",
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
