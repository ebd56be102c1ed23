"""Metrics, tests, figures and reports from the frames of a bank. Knows no model and no engine."""

# As in `logitbank` itself: read by type checkers, and by `front_door` as text.

from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.front_door import front_door

if TYPE_CHECKING:
    from logitbank.analysis.charts.chart import save_charts as save_charts
    from logitbank.analysis.charts.theme import theme as theme
    from logitbank.analysis.comparison.metrics import Comparison as Comparison
    from logitbank.analysis.debias.compare import debias_compare as debias_compare
    from logitbank.analysis.debias.erase import debias_erase as debias_erase
    from logitbank.analysis.debias.results import Debias as Debias
    from logitbank.analysis.debias.results import DebiasComparison as DebiasComparison
    from logitbank.analysis.debias.train import Training as Training
    from logitbank.analysis.debias.train import debias_train as debias_train
    from logitbank.analysis.families import register as register
    from logitbank.analysis.family import Family as Family
    from logitbank.analysis.frames.candidates import read_candidates as read_candidates
    from logitbank.analysis.frames.choose import with_columns as with_columns
    from logitbank.analysis.frames.expressions import jsd_parts as jsd_parts
    from logitbank.analysis.frames.expressions import scaled as scaled
    from logitbank.analysis.frames.expressions import three_way_correct as three_way_correct
    from logitbank.analysis.frames.expressions import unique_maximum as unique_maximum
    from logitbank.analysis.frames.expressions import vocabulary_rank as vocabulary_rank
    from logitbank.analysis.frames.items import Items as Items
    from logitbank.analysis.frames.items import gather_items as gather_items
    from logitbank.analysis.frames.pronoun_scores import as_scores as as_scores
    from logitbank.analysis.frames.reader import Scores as Scores
    from logitbank.analysis.frames.reader import read_scores as read_scores
    from logitbank.analysis.frames.stereoset_files import read_gold as read_gold
    from logitbank.analysis.frames.stereoset_files import read_predictions as read_predictions
    from logitbank.analysis.harness import read_harness as read_harness
    from logitbank.analysis.prompts.scores import PromptScores as PromptScores
    from logitbank.analysis.prompts.scores import prompt_scores as prompt_scores
    from logitbank.analysis.prompts.show import PromptMoves as PromptMoves
    from logitbank.analysis.prompts.show import PromptView as PromptView
    from logitbank.analysis.prompts.view import movements as movements
    from logitbank.analysis.results.files import write_tables as write_tables
    from logitbank.analysis.results.measured import Measured as Measured
    from logitbank.analysis.stats.change_points import Changes as Changes
    from logitbank.analysis.stats.change_points import Place as Place
    from logitbank.analysis.stats.change_points import Slope as Slope
    from logitbank.analysis.stats.change_points import change_points as change_points
    from logitbank.analysis.stats.correlation import pearson as pearson
    from logitbank.analysis.stats.correlation import pearson_matrix as pearson_matrix
    from logitbank.analysis.stats.correlation import variation as variation
    from logitbank.analysis.stats.measure import Measure as Measure
    from logitbank.analysis.stats.measure import Smooth as Smooth
    from logitbank.analysis.stats.significance import benjamini_hochberg as benjamini_hochberg
    from logitbank.analysis.stats.significance import mann_whitney as mann_whitney
    from logitbank.analysis.stats.significance import seed_mean as seed_mean
    from logitbank.analysis.stats.significance import wilcoxon as wilcoxon
    from logitbank.analysis.stats.summary import summarise as summarise

# A family gives its own names.
_FAMILIES = Path(__file__).parent.glob("families/*/__init__.py")
__getattr__, __dir__ = front_door(__name__, __file__, *_FAMILIES)
__all__ = __dir__()
