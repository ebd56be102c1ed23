"""The generic family: options, correct answers, entropy and agreement of any prompts."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Literal

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure, View

if TYPE_CHECKING:
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.results.measured import Measured
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
) -> "Study[Measured]":
    """Measure accuracy, option probabilities, ranks, entropy and top-1 agreement with the last
    checkpoint, for any prompts.

    Parameters
    ----------
    prompts
        Names of prompt sets, or one; all of the banks if None.
    score
        What options of several tokens are compared by: the `sum` of their log-probabilities, or
        that sum divided by `token` or `character`.
    entropy
        Whether to read full rows, which entropy needs and which are as large as the bank. A report
        does not. Everything else needs only scores.
    group_by
        Column of the prompts with 2 to 12 values. Each is a `group` of the measures, and the
        differences of groups are measures, with an interval and the change from the first
        checkpoint: of two groups that of one from the other, of more from the mean of the others.

    `banks` and `models` are those of `logitbank.fairness`.

    Raises
    ------
    AbsentError
        No bank has one of the prompt sets or models, or a checkpoint of them.
    LogitbankError
        A column that cannot group prompts, a run in two banks, or an answer without a probability.
    """
    from dataclasses import replace

    from logitbank.analysis.families.options import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.measured import overall
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    every = replace(FAMILY, prompts=with_columns())
    scores = read_scores(banks, prompts, models, family=every, rows=entropy)
    family, result = metric.measure_sets(scores, score=score, entropy=entropy, group_by=group_by)
    whole = overall(result.measures).filter(measure="top1_probability")
    missing = missing_sentences(whole, "prompt", "prompt_set")
    own = [MEANINGS[score], *([OF_SCORES] if score != "sum" else [])]
    own += [] if entropy else [NO_ENTROPY]
    return make_study(replace(family, notes=(*own, *family.notes)), result, scores, missing=missing)


MEANINGS: Mapping[Score, str] = {
    "sum": (
        "The probability of an option is the product over its tokens; it is normalized over the "
        "options of a prompt. Options of more tokens are less probable."
    ),
    "token": "The score of an option is its mean log-probability per token.",
    "character": "The score of an option is its log-probability divided by its characters.",
}
"""How option probabilities are computed."""
OF_SCORES = "Option probabilities are exp of the scores, normalized over the options of a prompt."
NO_ENTROPY = "Entropy needs full rows, which were not read: `logitbank analyze options BANK`."


def _mean(name: str, **about: Any) -> Measure:
    return Measure(name=name, plus=(name,), **about)


_SHARE: dict[str, Any] = {"form": ".1%", "share": True}
_FROM_0_TO_1: dict[str, Any] = {"limits": (0, 1)}
ACCURACY = _mean("accuracy", text="Accuracy", **_SHARE)
PROBABILITY = _mean("option_probability", text="Option probability", **_FROM_0_TO_1)
ENTROPY = _mean("entropy", text="Entropy (nats)", form=".2f", limits=(0, inf))
AGREEMENT = _mean("top1_agreement", text="Top-1 agreement", form=".1%", **_FROM_0_TO_1)
MEASURES = (
    ACCURACY,
    PROBABILITY,
    _mean("answer_probability", text="Answer probability", **_FROM_0_TO_1),
    _mean("answer_rank", text="Answer rank", form=",.1f", ranks=True),
    ENTROPY,
    AGREEMENT,
)
TIED = _mean("tied", **_SHARE)
OF_OPTIONS = (_mean("probability", **_FROM_0_TO_1), _mean("rank", ranks=True))
FURTHER = (TIED, *OF_OPTIONS, _mean("top1_probability", **_FROM_0_TO_1))
"""Measures that are in tables only."""


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
        "Answer probability and rank are those of the correct answer in the whole vocabulary. "
        "Ranks have no interval: a few large ones decide their mean. "
        "Top-1 agreement is the share of positions whose most probable token is that of the last "
        "checkpoint of the run.",
    ),
    measures=MEASURES,
    views={"answers": View(ACCURACY, TIED), "shares": View(PROBABILITY, *OF_OPTIONS)},
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    prompts=with_columns("pair", "edit"),  # and those that no other family chooses
    screen={
        "answers": columns(
            "prompt_set group accuracy accuracy_low accuracy_high tied items missing"
        ),
        "shares": columns(
            "prompt_set group option option_probability option_probability_low "
            "option_probability_high probability rank items"
        ),
        "measures": columns("prompt_set group option measure value low high items missing"),
    },
    analyze=options,
)
register(FAMILY)
