"""From a bank to the options of its prompt sets, whatever they ask."""

from collections.abc import Sequence
from pathlib import Path

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.options.findings import option_summary
from logitbank.analysis.families.options.metric import OptionScores, option_scores
from logitbank.analysis.families.options.score import Score, check_score
from logitbank.analysis.frames.sources import check_there
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.errors import AbsentError
from logitbank.store import Bank, open_bank


def options(
    bank: str | Path | Bank,
    *,
    prompts: Sequence[str] | str | None = None,
    models: Sequence[str] | None = None,
    score: Score = "sum",
    entropy: bool = True,
    out: str | Path | None = None,
    paper: Paper = PAPER,
) -> Study[OptionScores]:
    """Options, right answers, entropy and agreement of any prompt sets, by checkpoint.

    Parameters
    ----------
    prompts
        Names of prompt sets, or one; all of the bank if None.
    score
        What options of several tokens are compared by: `sum` of their log-probabilities, or that
        divided by `token`, `byte` or `character`; their `first` token alone; or `pmi`, the sum less
        that of the same option after the prompt's condition. A choice of every call: the bank has
        the tokens.
    entropy
        Whether to read full rows, as `option_scores` says.
    out
        Folder for tables, figures and the report.

    Raises
    ------
    AbsentError
        The bank lacks one of the prompt sets or models, or has no checkpoint of them.
    LogitbankError
        As `option_scores`.
    """
    check_score(score)
    opened = open_bank(bank, models=models, prompts=prompts, rows=entropy)
    names = [prompts] if isinstance(prompts, str) else list(prompts or opened.prompt_sets)
    check_there(opened, names, models)
    result = option_scores(opened, names, models=models, score=score, entropy=entropy)
    if result.checkpoints.is_empty():
        raise AbsentError(
            f"{opened.address} has no checkpoint of {', '.join(names) or 'any prompts'}; run "
            "`logitbank extract` first"
        )
    title = f"Options of {', '.join(names)}: {models_of(result)}"
    return finish(
        result,
        option_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=[opened],
        prompts=names,
        models=models,
    )
