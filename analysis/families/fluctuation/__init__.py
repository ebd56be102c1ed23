"""Fluctuation: how pronoun scores of professions move between checkpoints."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.fluctuation.metric import Fluctuation


def family() -> "Family[Fluctuation]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.fluctuation.figure_data import fluctuation_figure_data
    from logitbank.analysis.families.fluctuation.message import fluctuation_message
    from logitbank.analysis.families.fluctuation.metric import Fluctuation
    from logitbank.analysis.families.fluctuation.sheets import fluctuation_sheets
    from logitbank.analysis.families.fluctuation.sources import PROMPTS
    from logitbank.analysis.families.fluctuation.study import fluctuation
    from logitbank.analysis.families.fluctuation.summary import CAUTIONS

    return Family(
        name="fluctuation",
        title="Fluctuation",
        place=2,
        asks=(
            "Each prompt asks whether “he” or “she” comes before a profession. R is how many times "
            "as probable “he” is, and its coefficient of variation (CV) how much that wanders over "
            "the checkpoints of a plateau, the late part of training: where it is large, a single "
            "checkpoint tells little."
        ),
        cautions=CAUTIONS,
        result=Fluctuation,
        prompts=PROMPTS,
        study=lambda banks, prompts, models, bootstrap: fluctuation(
            banks, prompts=prompts[0], models=models
        ),
        drawing=Drawing(fluctuation_figure_data, fluctuation_sheets),
        brief={
            "plateaus": columns("first_step checkpoints prior_cv prior_certainty"),
            "spread": columns("measure min max mean median n excluded"),
            "correlations": columns("x y case r n excluded"),
            "run_pairs": columns("measure run_a run_b r n excluded"),
            "frequent": columns("case rank occupation frequency"),
        },
        message=fluctuation_message,
    )
