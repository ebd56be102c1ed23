"""Curves over training of any prompts: entropy, the right answer, agreement with the end."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, any_prompts, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.curves.metric import Curves


def family() -> "Family[Curves]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.curves.message import curves_message
    from logitbank.analysis.families.curves.metric import Curves
    from logitbank.analysis.families.curves.study import (
        CAUTIONS,
        curve_figure_data,
        curve_sheets,
        curves,
    )

    return Family(
        name="curves",
        title="Curves",
        place=10,
        asks=(
            "How predictions change during training, whatever is asked: how sure the model is, "
            "how probable the right answer is, and how early it says what it says at the end."
        ),
        cautions=CAUTIONS,
        result=Curves,
        prompts=any_prompts,
        # A report reads scores alone: entropy takes every full row of the bank.
        study=lambda banks, prompts, models, bootstrap: curves(
            banks[0], prompts=prompts, models=models, entropy=False
        ),
        drawing=Drawing(curve_figure_data, curve_sheets),
        brief={"curves": columns("prompt_set measure value low high prompts")},
        message=curves_message,
    )
