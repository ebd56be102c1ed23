"""StereoSet: lms, ss and iCAT."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.stereoset.metric import StereoSet


def family() -> "Family[StereoSet]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.stereoset.figure_data import stereoset_figure_data
    from logitbank.analysis.families.stereoset.message import stereoset_message
    from logitbank.analysis.families.stereoset.metric import StereoSet
    from logitbank.analysis.families.stereoset.sheets import stereoset_sheets
    from logitbank.analysis.families.stereoset.sources import PROMPTS
    from logitbank.analysis.families.stereoset.study import stereoset
    from logitbank.analysis.families.stereoset.summary import CAUTIONS

    return Family(
        name="stereoset",
        title="StereoSet",
        place=3,
        asks=(
            "Each example has a stereotyped, an anti-stereotyped and an unrelated candidate. lms "
            "is how often the related ones are preferred to the unrelated one (100 is best), ss "
            "how often the stereotyped one is preferred to its opposite (50 is no preference), and "
            "iCAT joins both (100 is best)."
        ),
        cautions=CAUTIONS,
        result=StereoSet,
        prompts=PROMPTS,
        study=lambda banks, prompts, models, bootstrap: stereoset(
            banks, prompts=prompts, models=models, bootstrap=bootstrap
        ),
        drawing=Drawing(stereoset_figure_data, stereoset_sheets),
        brief={
            "scores": columns(
                "language condition score task domain lms ss icat icat_low icat_high terms examples"
            ),
            "differences": columns("condition task domain lms ss icat icat_low icat_high"),
        },
        message=stereoset_message,
    )
