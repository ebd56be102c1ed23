"""Fairness: answers by gender, their distances, ranks, tests and change points."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, Gap, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.fairness.metric import Fairness


def family() -> "Family[Fairness]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.fairness.figure_data import fairness_figure_data
    from logitbank.analysis.families.fairness.headline import (
        fairness_gap,
        fairness_headline,
        wanted_gap,
    )
    from logitbank.analysis.families.fairness.message import fairness_message
    from logitbank.analysis.families.fairness.metric import Fairness
    from logitbank.analysis.families.fairness.sheets import fairness_sheets
    from logitbank.analysis.families.fairness.study import PROMPTS, fairness
    from logitbank.analysis.families.fairness.summary import CAUTIONS

    return Family(
        name="fairness",
        title="Fairness",
        place=1,
        asks=(
            "Each prompt is a sentence with a pronoun, a question about the gender of somebody in "
            "it, and the answers male, female and not specified. The gap Δ says how much farther "
            "the model is from the right answer for women than for men, from −1 to 1: 0 is fair, "
            "above 0 it serves women worse, below 0 men."
        ),
        cautions=CAUTIONS,
        result=Fairness,
        prompts=PROMPTS,
        study=lambda banks, prompts, models, bootstrap: fairness(
            banks, prompts=prompts[0], models=models, bootstrap=bootstrap
        ),
        drawing=Drawing(fairness_figure_data, fairness_sheets),
        brief={
            "gap": columns("delta_scaled low_scaled high_scaled sd_scaled"),
            "average_rank": columns(
                "gold average_rank geometric_rank geometric_low geometric_high sd tied"
            ),
            "tests": columns(
                "measure test p p_bh rank_biserial difference from_baseline from_baseline_low "
                "from_baseline_high"
            ),
            "comparison": columns("other_model option test statistic p p_bh effect significant"),
            "change_points": columns(
                "change kind p_random_walk p_holm earliest latest mean_before mean_after"
            ),
        },
        headline=fairness_headline,
        message=fairness_message,
        gaps={"fairness": Gap("gap |Δ|, JSD-P scaled", "winobias", fairness_gap, wanted_gap)},
    )
