"""The generic family: options, right answers, entropy and agreement of any prompts."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, called

if TYPE_CHECKING:
    from logitbank.analysis.families.options.metric import OptionScores


def family() -> "Family[OptionScores]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.options.findings import CAUTIONS, option_message
    from logitbank.analysis.families.options.metric import OptionScores
    from logitbank.analysis.families.options.sheets import option_figure_data, option_sheets
    from logitbank.analysis.families.options.study import options

    return Family(
        name="options",
        title="Options",
        place=9,
        asks=(
            "How the probability of a prompt's options is shared out among them, how often the "
            "right answer wins, how sure the model is, and how early it says what it says at the "
            "end: means over prompts, whatever they ask."
        ),
        cautions=CAUTIONS,
        result=OptionScores,
        prompts=called(),  # any prompts that no other family knows
        # A report reads scores alone: entropy takes every full row of the bank.
        study=lambda banks, prompts, models, bootstrap: options(
            banks[0], prompts=prompts, models=models, entropy=False
        ),
        drawing=Drawing(option_figure_data, option_sheets),
        brief={},  # its tables are what `show` draws
        message=option_message,
    )
