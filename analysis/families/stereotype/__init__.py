"""Stereotype accuracy."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import named
from logitbank.analysis.stats.measure import Measure, View

if TYPE_CHECKING:
    from logitbank.analysis.families.stereotype.metric import stereotype_metric as stereotype_metric
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.results.measured import Measured
    from logitbank.analysis.study import Study

PRONOUNS, GENDERS = "stereotype-accuracy", "winobias"
ACCURACY = Measure(
    name="accuracy", text="Stereotype accuracy", share=True, limits=(0, 1), reference=0.5,
    meaning="no stereotype",
)  # fmt: skip


def stereotype(
    banks: "Banks",
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    bootstrap: Annotated[int, "Number of resamples of the gender gap; 0 for none."] = 1000,
) -> "Study[Measured]":
    """Measure how often the model prefers the pronoun or gender of an occupation's stereotype.

    Parameters
    ----------
    prompts
        Names of a prompt set about pronouns, of WinoBias, or of both; by default
        `stereotype-accuracy` and `winobias`, if a bank has them.
    bootstrap
        Number of resamples of the sentences, for the change points of the gender gap.

    `banks`, `models` and `cache` are those of `logitbank.fairness`.

    Raises
    ------
    LogitbankError
        A missing bank, no such prompts, or what `stereotype_metric` refuses.
    """
    from logitbank.analysis.families.stereotype import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    scores = read_scores(banks, prompts, models, family=FAMILY, cache=cache)
    result = metric.stereotype_metric(scores, bootstrap=bootstrap)
    missing = missing_sentences(result.further["counts"], "sentence", "kind")
    return make_study(FAMILY, result, scores, missing=missing)


FAMILY = Family(
    name="stereotype",
    title="Stereotype accuracy",
    order=5,
    description=(
        "Stereotype accuracy is how often the model prefers the pronoun, or the gender, that "
        "matches the stereotype of a person's occupation. One half is no preference."
    ),
    cautions=(
        "The stereotypes are those of occupations in the United States, for two genders. SA and "
        "sa_gender use different questions, so their values are not comparable.",
    ),
    notes=(
        "Intervals (95%) are over sentences, pointwise: they do not allow for the number of "
        "checkpoints.",
    ),
    prompts=named(PRONOUNS, GENDERS),
    example=PRONOUNS,
    item="sentence",
    measures=(ACCURACY,),
    views={"stereotype_accuracy": View(ACCURACY)},
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    screen={
        "stereotype_accuracy": columns("type kind accuracy low high items missing"),
        "jsd_p": columns("group jsd_p low high items missing"),
        "counts": columns("type kind orders tied sd expected missing"),
        "over_change": columns(
            "measure type before after delta_before delta_after change low high"
        ),
    },
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=stereotype,
)
register(FAMILY)
