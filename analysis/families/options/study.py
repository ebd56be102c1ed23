"""From a bank to the shares of a prompt set's options, whatever it asks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.options.metric import (
    OptionScores,
    option_scores,
    option_summary,
)
from logitbank.analysis.families.options.score import Score, check_score
from logitbank.analysis.frames.expected import left_out_sentences
from logitbank.analysis.frames.sources import check_there
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, open_bank


def options(
    bank: str | Path | Bank,
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    score: Score = "sum",
    out: str | Path | None = None,
    paper: Paper = PAPER,
) -> Study[OptionScores]:
    """Shares of the options of any prompt set, and how often the answer wins, by checkpoint.

    Parameters
    ----------
    prompts
        Name of the prompt set; may be left out where the bank has one alone.
    score
        What options of several tokens are compared by: `sum` of their log-probabilities, or that
        divided by `token`, `byte` or `character`; their `first` token alone; or `pmi`, the sum less
        that of the same option after the prompt's condition. A choice of every call: the bank has
        the tokens.
    out
        Folder for tables, figures and the report.

    Raises
    ------
    AbsentError
        The bank lacks the prompt set or one of the models.
    UsageError
        The bank has several prompt sets and none is named, the score is none of these, or PMI of
        prompts without conditions.
    BankError
        None of the options is scored.
    """
    check_score(score)
    opened = open_bank(bank, models=models, prompts=prompts)
    names = opened.prompt_sets
    if prompts is None and len(names) != 1:
        raise UsageError(
            f"{opened.path} has {len(names)} prompt sets ({', '.join(names) or 'none'}); name one "
            "with --prompts"
        )
    name = names[0] if prompts is None else prompts
    check_there(opened, [name], models)
    study = option_study(opened, name, models=models, score=score)
    title = f"Options of {name}: {models_of(study.result)}"
    return finish(
        study.result,
        study.summary,
        title=title,
        out=out,
        paper=paper,
        banks=[opened],
    )


def option_study(
    bank: Bank, prompts: str, *, models: Sequence[str] | None = None, score: Score = "sum"
) -> Study[OptionScores]:
    """The shares of the options of a prompt set.

    Raises
    ------
    BankError
        None of the options is scored.
    """
    each = prompt_scores(bank, prompts, models=models, first_piece=score == "first", few=True)
    result = option_scores(each, score=score)
    if not result.shares["prompts"].sum():
        raise BankError(
            f"no option of prompt set {prompts!r} is scored, so there is nothing to share; extract"
            " it with prompts that have options"
        )
    summary = option_summary(result)
    left_out = (*summary.left_out, *left_out_sentences([bank], [prompts], models))
    return Study(result, replace(summary, left_out=left_out))
