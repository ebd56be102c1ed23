"""The generic family: options, correct answers, entropy and agreement of any prompts."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure

if TYPE_CHECKING:
    from logitbank.analysis.families.options.metric import OptionScores as OptionScores
    from logitbank.analysis.families.options.metric import option_scores as option_scores
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.study import Study

Score = Literal["sum", "token", "character"]
"""Scores by which options are compared: the sum of the log-probabilities of their tokens, or that
sum divided by tokens or characters."""


def options(
    banks: "Banks",
    *,
    prompts: Sequence[str] | str | None = None,
    models: Sequence[str] | None = None,
    score: Annotated[Score, "Score of options with several tokens."] = "sum",
    entropy: Annotated[bool, "Entropy of the full rows of logits, if they are stored."] = True,
    group_by: Annotated[
        str | None,
        "Column of the prompts whose values are compared; an unknown name lists the columns.",
    ] = None,
) -> "Study[OptionScores]":
    """Measure accuracy, option probabilities, ranks, entropy and top-1 agreement with the last
    checkpoint, for any prompts.

    Parameters
    ----------
    banks
        One or several banks, analysed together: folders, URLs, or open banks.
    prompts
        Names of prompt sets, or one; all of the banks if None.
    models
        Only these models.
    score
        What options of several tokens are compared by: the `sum` of their log-probabilities, or
        that sum divided by `token` or `character`.
    entropy
        Whether to read full rows, which entropy needs and which are as large as the bank. A report
        does not. Everything else needs only scores.
    group_by
        Column of the prompts with 2 to 12 values. The table, chart and findings `groups` have the
        value of each, their difference with an interval, and its change from the first checkpoint.

    Raises
    ------
    AbsentError
        No bank has one of the prompt sets or models, or a checkpoint of them.
    LogitbankError
        What `option_scores` refuses.
    """
    from dataclasses import replace

    from logitbank.analysis.families.options import metric
    from logitbank.analysis.families.options.findings import score_notes
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    every = replace(FAMILY, prompts=with_columns())
    scores = read_scores(banks, prompts, models, family=every, rows=entropy)
    result = metric.option_scores(scores, score=score, entropy=entropy, group_by=group_by)
    # The mean over runs is of sums.
    family = FAMILY if score == "sum" else replace(FAMILY, measures=())
    missing = missing_sentences(result.checkpoints, "prompt", "prompt_set")
    study = make_study(family, result, scores, missing=missing)
    return replace(study, notes=(*score_notes(result), *study.notes))


FAMILY = Family(
    name="options",
    title="Options",
    item="prompt",
    cluster="sentence",
    order=10,
    description=(
        "For prompts of any kind: how often the correct answer is the most probable option, the "
        "probability of each option, the rank of the correct answer in the vocabulary, the entropy "
        "of the prediction, and how early it agrees with the last checkpoint."
    ),
    cautions=(
        "A low entropy means that the model is certain, not that it is correct.",
        "Entropy and ranks are over the whole vocabulary: they are not comparable between models "
        "with different vocabularies.",
    ),
    notes=(
        "Intervals (95%) are over prompts, clustered by sentence_id if they have it. Fewer than "
        "ten give none. They are pointwise: they do not allow for the number of checkpoints.",
        "Top-1 agreement is the share of positions whose most probable token is that of the last "
        "checkpoint of the run.",
    ),
    measures=(
        Measure(name="accuracy", text="Accuracy", form=".1%", share=True),
        Measure(name="option_probability", text="Option probability", plus=("probability",)),
    ),
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    prompts=with_columns("pair", "edit"),  # and those that no other family chooses
    screen={
        "answers": columns("prompt_set accuracy low high prompts tied missing"),
        "shares": columns("prompt_set option option_probability low high probability rank prompts"),
        "groups": columns("prompt_set score option group minus value low high prompts"),
        "curves": columns("prompt_set measure value low high prompts"),
    },
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=options,
)
register(FAMILY)
