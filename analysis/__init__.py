"""Metrics, tests, figures and reports from the frames of a bank. Knows no model and no engine."""

# As in `logitbank` itself: of the two lists, a type checker reads the first and Python the second.

from typing import TYPE_CHECKING

from logitbank.front_door import lazily

if TYPE_CHECKING:
    from logitbank.analysis.drawing.figures import figure_data as figure_data
    from logitbank.analysis.drawing.figures import figures as figures
    from logitbank.analysis.drawing.figures import interactive_figures as interactive_figures
    from logitbank.analysis.families.crows_pairs.metric import CrowsPairs as CrowsPairs
    from logitbank.analysis.families.crows_pairs.metric import (
        crows_pairs_metric as crows_pairs_metric,
    )
    from logitbank.analysis.families.curves.metric import Curves as Curves
    from logitbank.analysis.families.curves.metric import curves_metric as curves_metric
    from logitbank.analysis.families.fairness.checks import FairnessLabels as FairnessLabels
    from logitbank.analysis.families.fairness.metric import Fairness as Fairness
    from logitbank.analysis.families.fairness.metric import fairness_change as fairness_change
    from logitbank.analysis.families.fairness.metric import fairness_metric as fairness_metric
    from logitbank.analysis.families.fairness.summary import fairness_summary as fairness_summary
    from logitbank.analysis.families.fluctuation.frequencies import (
        corpus_frequencies as corpus_frequencies,
    )
    from logitbank.analysis.families.fluctuation.metric import Fluctuation as Fluctuation
    from logitbank.analysis.families.fluctuation.metric import (
        fluctuation_metric as fluctuation_metric,
    )
    from logitbank.analysis.families.fluctuation.scores import as_scores as as_scores
    from logitbank.analysis.families.fluctuation.scores import published_table as published_table
    from logitbank.analysis.families.fluctuation.scores import write_scores as write_scores
    from logitbank.analysis.families.fluctuation.summary import (
        fluctuation_summary as fluctuation_summary,
    )
    from logitbank.analysis.families.lambada.metric import Lambada as Lambada
    from logitbank.analysis.families.lambada.metric import lambada_examples as lambada_examples
    from logitbank.analysis.families.lambada.metric import lambada_metric as lambada_metric
    from logitbank.analysis.families.layers.metric import Layers as Layers
    from logitbank.analysis.families.layers.metric import layers_metric as layers_metric
    from logitbank.analysis.families.options.metric import OptionScores as OptionScores
    from logitbank.analysis.families.options.metric import option_scores as option_scores
    from logitbank.analysis.families.stereoset.files import read_predictions as read_predictions
    from logitbank.analysis.families.stereoset.files import write_predictions as write_predictions
    from logitbank.analysis.families.stereoset.gold import read_gold as read_gold
    from logitbank.analysis.families.stereoset.metric import StereoSet as StereoSet
    from logitbank.analysis.families.stereoset.metric import stereoset_metric as stereoset_metric
    from logitbank.analysis.families.stereoset.scores import as_candidates as as_candidates
    from logitbank.analysis.families.stereoset.summary import stereoset_summary as stereoset_summary
    from logitbank.analysis.families.stereotype.metric import (
        StereotypeAccuracy as StereotypeAccuracy,
    )
    from logitbank.analysis.families.stereotype.metric import stereotype_metric as stereotype_metric
    from logitbank.analysis.families.stereotype.referents import WinobiasEm as WinobiasEm
    from logitbank.analysis.families.stereotype.referents import winobias_em as winobias_em
    from logitbank.analysis.families.tradeoff.metric import TradeOff as TradeOff
    from logitbank.analysis.families.tradeoff.metric import tradeoff_metric as tradeoff_metric
    from logitbank.analysis.families.tradeoff.summary import tradeoff_summary as tradeoff_summary
    from logitbank.analysis.families.unqover.instances import unqover_instances as unqover_instances
    from logitbank.analysis.families.unqover.metric import Unqover as Unqover
    from logitbank.analysis.families.unqover.metric import unqover_metric as unqover_metric
    from logitbank.analysis.families.unqover.summary import unqover_summary as unqover_summary
    from logitbank.analysis.frames.batches import batches as batches
    from logitbank.analysis.frames.expected import expected_pieces as expected_pieces
    from logitbank.analysis.frames.expected import expected_rows as expected_rows
    from logitbank.analysis.frames.expressions import jsd_parts as jsd_parts
    from logitbank.analysis.frames.expressions import scaled as scaled
    from logitbank.analysis.frames.expressions import three_way_correct as three_way_correct
    from logitbank.analysis.frames.expressions import unique_maximum as unique_maximum
    from logitbank.analysis.frames.expressions import vocabulary_rank as vocabulary_rank
    from logitbank.analysis.harness.read import read_harness as read_harness
    from logitbank.analysis.harness.write import write_harness as write_harness
    from logitbank.analysis.prompts.scores import PromptScores as PromptScores
    from logitbank.analysis.prompts.scores import prompt_scores as prompt_scores
    from logitbank.analysis.prompts.view import differences as differences
    from logitbank.analysis.prompts.view import movements as movements
    from logitbank.analysis.report.study import write_report as write_report
    from logitbank.analysis.results.files import write_tables as write_tables
    from logitbank.analysis.stats.change_points import ChangePoint as ChangePoint
    from logitbank.analysis.stats.change_points import change_point as change_point
    from logitbank.analysis.stats.correlation import pearson as pearson
    from logitbank.analysis.stats.correlation import pearson_matrix as pearson_matrix
    from logitbank.analysis.stats.correlation import variation as variation
    from logitbank.analysis.stats.significance import benjamini_hochberg as benjamini_hochberg
    from logitbank.analysis.stats.significance import mann_whitney as mann_whitney
    from logitbank.analysis.stats.significance import seed_mean as seed_mean
    from logitbank.analysis.stats.significance import wilcoxon as wilcoxon

_HOMES = {
    "ChangePoint": "analysis.stats.change_points",
    "CrowsPairs": "analysis.families.crows_pairs.metric",
    "Curves": "analysis.families.curves.metric",
    "Fairness": "analysis.families.fairness.metric",
    "FairnessLabels": "analysis.families.fairness.checks",
    "Fluctuation": "analysis.families.fluctuation.metric",
    "Lambada": "analysis.families.lambada.metric",
    "Layers": "analysis.families.layers.metric",
    "OptionScores": "analysis.families.options.metric",
    "PromptScores": "analysis.prompts.scores",
    "StereoSet": "analysis.families.stereoset.metric",
    "StereotypeAccuracy": "analysis.families.stereotype.metric",
    "TradeOff": "analysis.families.tradeoff.metric",
    "Unqover": "analysis.families.unqover.metric",
    "WinobiasEm": "analysis.families.stereotype.referents",
    "as_candidates": "analysis.families.stereoset.scores",
    "as_scores": "analysis.families.fluctuation.scores",
    "batches": "analysis.frames.batches",
    "benjamini_hochberg": "analysis.stats.significance",
    "change_point": "analysis.stats.change_points",
    "corpus_frequencies": "analysis.families.fluctuation.frequencies",
    "crows_pairs_metric": "analysis.families.crows_pairs.metric",
    "curves_metric": "analysis.families.curves.metric",
    "differences": "analysis.prompts.view",
    "expected_pieces": "analysis.frames.expected",
    "expected_rows": "analysis.frames.expected",
    "fairness_change": "analysis.families.fairness.metric",
    "fairness_metric": "analysis.families.fairness.metric",
    "fairness_summary": "analysis.families.fairness.summary",
    "figure_data": "analysis.drawing.figures",
    "figures": "analysis.drawing.figures",
    "fluctuation_metric": "analysis.families.fluctuation.metric",
    "fluctuation_summary": "analysis.families.fluctuation.summary",
    "interactive_figures": "analysis.drawing.figures",
    "jsd_parts": "analysis.frames.expressions",
    "lambada_examples": "analysis.families.lambada.metric",
    "lambada_metric": "analysis.families.lambada.metric",
    "layers_metric": "analysis.families.layers.metric",
    "mann_whitney": "analysis.stats.significance",
    "movements": "analysis.prompts.view",
    "option_scores": "analysis.families.options.metric",
    "pearson": "analysis.stats.correlation",
    "pearson_matrix": "analysis.stats.correlation",
    "prompt_scores": "analysis.prompts.scores",
    "published_table": "analysis.families.fluctuation.scores",
    "read_gold": "analysis.families.stereoset.gold",
    "read_harness": "analysis.harness.read",
    "read_predictions": "analysis.families.stereoset.files",
    "scaled": "analysis.frames.expressions",
    "seed_mean": "analysis.stats.significance",
    "stereoset_metric": "analysis.families.stereoset.metric",
    "stereoset_summary": "analysis.families.stereoset.summary",
    "stereotype_metric": "analysis.families.stereotype.metric",
    "three_way_correct": "analysis.frames.expressions",
    "tradeoff_metric": "analysis.families.tradeoff.metric",
    "tradeoff_summary": "analysis.families.tradeoff.summary",
    "unique_maximum": "analysis.frames.expressions",
    "unqover_instances": "analysis.families.unqover.instances",
    "unqover_metric": "analysis.families.unqover.metric",
    "unqover_summary": "analysis.families.unqover.summary",
    "variation": "analysis.stats.correlation",
    "vocabulary_rank": "analysis.frames.expressions",
    "wilcoxon": "analysis.stats.significance",
    "winobias_em": "analysis.families.stereotype.referents",
    "write_harness": "analysis.harness.write",
    "write_predictions": "analysis.families.stereoset.files",
    "write_report": "analysis.report.study",
    "write_scores": "analysis.families.fluctuation.scores",
    "write_tables": "analysis.results.files",
}
__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazily(__name__, _HOMES, __all__)
