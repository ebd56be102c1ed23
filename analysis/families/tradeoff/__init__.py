"""Trade-offs: a bias against an ability, checkpoint by checkpoint."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.tradeoff.metric import TradeOff


def family() -> "Family[TradeOff]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.tradeoff.figure_data import tradeoff_figure_data
    from logitbank.analysis.families.tradeoff.message import tradeoff_message
    from logitbank.analysis.families.tradeoff.metric import TradeOff
    from logitbank.analysis.families.tradeoff.sheets import tradeoff_sheets
    from logitbank.analysis.families.tradeoff.study import (
        gap_of,
        own_prompts,
        tradeoff,
        wanted_sides,
    )
    from logitbank.analysis.families.tradeoff.summary import CAUTIONS

    return Family(
        name="tradeoff",
        title="Performance and fairness",
        place=8,
        asks=(
            "Checkpoints by what they can do and by how biased they are: which of them no other "
            "beats in both, and what a smaller gap would cost."
        ),
        cautions=CAUTIONS,
        result=TradeOff,
        prompts=own_prompts,
        study=lambda banks, prompts, models, bootstrap: tradeoff(
            banks, gap=gap_of(prompts[1]), models=models, bootstrap=bootstrap
        ),
        wants=wanted_sides,
        drawing=Drawing(tradeoff_figure_data, tradeoff_sheets),
        brief={
            "tradeoff": columns("performance gap on_front front_share"),
            "choices": columns("give_up best_step performance gap fairness_change chosen_share"),
            "pairs": columns(
                "before after performance_change performance_low performance_high fairness_change "
                "fairness_low fairness_high"
            ),
            "change_points": columns(
                "curve change kind p_random_walk earliest latest mean_before mean_after"
            ),
        },
        message=tradeoff_message,
    )
