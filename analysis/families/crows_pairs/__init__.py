"""CrowS-Pairs: which sentence of a pair a model prefers."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, Gap, called, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.crows_pairs.metric import CrowsPairs


def family() -> "Family[CrowsPairs]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.crows_pairs.figure_data import crows_pairs_figure_data
    from logitbank.analysis.families.crows_pairs.gap import crows_pairs_gap
    from logitbank.analysis.families.crows_pairs.headline import crows_pairs_headline
    from logitbank.analysis.families.crows_pairs.message import crows_pairs_message
    from logitbank.analysis.families.crows_pairs.metric import CrowsPairs
    from logitbank.analysis.families.crows_pairs.sheets import crows_pairs_sheets
    from logitbank.analysis.families.crows_pairs.study import crows_pairs
    from logitbank.analysis.families.crows_pairs.summary import CAUTIONS

    return Family(
        name="crows-pairs",
        title="CrowS-Pairs",
        place=6,
        asks=(
            "The sentences of a pair differ in the group that they are about. The score is how "
            "often the stereotyping one is the more probable: 50 % is no preference."
        ),
        cautions=CAUTIONS,
        result=CrowsPairs,
        prompts=called("crows-pairs"),
        study=lambda banks, prompts, models, bootstrap: crows_pairs(
            banks, prompts=prompts[0], models=models
        ),
        drawing=Drawing(crows_pairs_figure_data, crows_pairs_sheets),
        brief={
            "crows_pairs": columns(
                "score_kind bias_type score low high stereo_score antistereo_score pairs neutral"
            ),
        },
        headline=crows_pairs_headline,
        message=crows_pairs_message,
        gaps={
            "crows-pairs": Gap(
                "distance of the CrowS-Pairs score from ½", "crows-pairs", crows_pairs_gap
            )
        },
    )
