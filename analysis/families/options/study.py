"""From a bank to the shares of a prompt set's options, whatever it asks."""

from collections.abc import Sequence

from logitbank.analysis.families.options.metric import OptionScores, option_scores, option_summary
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.results.study import Study
from logitbank.errors import BankError
from logitbank.store import Readable


def option_study(
    bank: Readable, prompts: str, *, models: Sequence[str] | None = None
) -> Study[OptionScores]:
    """The shares of the options of a prompt set.

    Raises
    ------
    BankError
        None of the options is scored.
    """
    result = option_scores(prompt_scores(bank, prompts, models=models))
    if not result.shares["prompts"].sum():
        raise BankError(
            f"no option of prompt set {prompts!r} is scored, so there is nothing to share"
        )
    return Study(result, option_summary(result))
