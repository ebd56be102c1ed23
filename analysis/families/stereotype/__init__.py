"""Stereotype accuracy."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, Gap, called, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy

PRONOUNS, GENDERS = "stereotype-accuracy", "winobias"


def family() -> "Family[StereotypeAccuracy]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.stereotype.figure_data import stereotype_figure_data
    from logitbank.analysis.families.stereotype.gap import sa_gender_gap, stereotype_gap
    from logitbank.analysis.families.stereotype.message import stereotype_message
    from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
    from logitbank.analysis.families.stereotype.sheets import stereotype_sheets
    from logitbank.analysis.families.stereotype.study import stereotype, wanted_of_winobias
    from logitbank.analysis.families.stereotype.summary import CAUTIONS

    return Family(
        name="stereotype",
        title="Stereotype accuracy",
        place=5,
        asks=(
            "How often the model gives a person of an occupation the pronoun, or the gender, of "
            "the stereotype: one half is no preference."
        ),
        cautions=CAUTIONS,
        result=StereotypeAccuracy,
        prompts=called(PRONOUNS, GENDERS),
        study=lambda banks, prompts, models, bootstrap: stereotype(
            banks,
            # What is not among the prompt sets is studied as what no bank has.
            prompts=PRONOUNS if PRONOUNS in prompts else "",
            winobias=GENDERS if GENDERS in prompts else "",
            models=models,
        ),
        wants=wanted_of_winobias,
        drawing=Drawing(stereotype_figure_data, stereotype_sheets),
        brief={
            "stereotype_accuracy": columns("measure type accuracy low high sentences missing tied"),
        },
        message=stereotype_message,
        gaps={
            "stereotype": Gap("distance of SA from ½", "stereotype-accuracy", stereotype_gap),
            "sa_gender": Gap("distance of sa_gender from ½", "winobias", sa_gender_gap),
        },
    )
