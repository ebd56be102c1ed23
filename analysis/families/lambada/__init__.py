"""LAMBADA: the last word of a passage."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, called, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.lambada.metric import Lambada


def family() -> "Family[Lambada]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.lambada.figure_data import lambada_figure_data
    from logitbank.analysis.families.lambada.headline import lambada_headline
    from logitbank.analysis.families.lambada.message import lambada_message
    from logitbank.analysis.families.lambada.metric import Lambada
    from logitbank.analysis.families.lambada.sheets import lambada_sheets
    from logitbank.analysis.families.lambada.study import lambada
    from logitbank.analysis.families.lambada.summary import CAUTIONS

    return Family(
        name="lambada",
        title="LAMBADA",
        place=7,
        asks=(
            "How often the model knows the last word of a passage, and how much that word "
            "surprises it (perplexity): what it can do, whatever its bias."
        ),
        cautions=CAUTIONS,
        result=Lambada,
        prompts=called("lambada"),
        study=lambda banks, prompts, models, bootstrap: lambada(
            banks, prompts=prompts[0], models=models
        ),
        drawing=Drawing(lambada_figure_data, lambada_sheets),
        brief={
            "lambada": columns("acc low high from_baseline perplexity examples tied"),
        },
        headline=lambada_headline,
        message=lambada_message,
    )
