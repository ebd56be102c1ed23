"""Shares and accuracy of options, for prompts that no family knows."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, called

if TYPE_CHECKING:
    from logitbank.analysis.families.options.metric import OptionScores


def family() -> "Family[OptionScores]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.options.message import option_message
    from logitbank.analysis.families.options.metric import OptionScores
    from logitbank.analysis.families.options.sheets import option_figure_data, option_sheets
    from logitbank.analysis.families.options.study import option_study

    return Family(
        name="options",
        title="Options",
        place=9,
        asks=(
            "How the probability of a prompt's options is shared out among them, on average over "
            "the prompts."
        ),
        cautions=(),
        result=OptionScores,
        prompts=called(),  # any prompts that no other family knows
        study=lambda banks, prompts, models, bootstrap: option_study(
            banks[0], prompts[0], models=models
        ),
        drawing=Drawing(option_figure_data, option_sheets),
        brief={},  # its tables are what `show` draws
        message=option_message,
    )
