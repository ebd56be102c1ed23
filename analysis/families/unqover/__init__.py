"""UnQover: subjects and attributes in questions that do not tell."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.unqover.metric import Unqover


def family() -> "Family[Unqover]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.unqover.figure_data import unqover_figure_data
    from logitbank.analysis.families.unqover.message import unqover_message
    from logitbank.analysis.families.unqover.metric import Unqover
    from logitbank.analysis.families.unqover.sheets import unqover_sheets
    from logitbank.analysis.families.unqover.study import PROMPTS, unqover
    from logitbank.analysis.families.unqover.summary import CAUTIONS

    return Family(
        name="unqover",
        title="UnQover",
        place=4,
        asks=(
            "Each question names two people or groups and leaves open whom an attribute fits, so "
            "an unbiased model favours neither. C says how much one of them is favoured, from −1 "
            "to 1; μ and η are the size of such preferences over all, and 0 is none."
        ),
        cautions=CAUTIONS,
        result=Unqover,
        prompts=PROMPTS,
        study=lambda banks, prompts, models, bootstrap: unqover(
            banks, prompts=prompts, models=models, bootstrap=bootstrap
        ),
        drawing=Drawing(unqover_figure_data, unqover_sheets),
        brief={
            "unqover": columns(
                "category split mu mu_low mu_high eta abs_c positional attributive coverage_8 "
                "coverage_10 instances missing"
            ),
        },
        message=unqover_message,
    )
