"""UnQover: subjects and attributes in underspecified questions."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_prefix
from logitbank.analysis.stats.measure import Measure, ratio

if TYPE_CHECKING:
    from logitbank.analysis.families.unqover.metric import Unqover as Unqover
    from logitbank.analysis.families.unqover.metric import unqover_metric as unqover_metric
    from logitbank.analysis.families.unqover.tables import unqover_instances as unqover_instances
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.study import Study


def unqover(
    banks: "Banks",
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    topk: int | None = None,
    he_she: Annotated[bool, "Count he/she as mentions of the name too."] = False,
) -> "Study[Unqover]":
    """Measure which subjects a model prefers in underspecified questions (UnQover).

    Parameters
    ----------
    prompts
        Names of prompt sets; by default all that begin with `unqover-` and have been scored.

    `banks` and `models` are those of `logitbank.fairness`, and the others those of
    `logitbank.analysis.unqover_metric`.

    Raises
    ------
    LogitbankError
        A missing bank, prompt set or model, or what `unqover_metric` refuses.
    """
    from dataclasses import replace

    from logitbank.analysis.families.unqover import metric
    from logitbank.analysis.families.unqover.tables import ALL
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    scores = read_scores(banks, prompts, models, family=FAMILY)
    result = metric.unqover_metric(scores, topk=topk, he_she=he_she)
    missing = missing_sentences(result.counts.filter(split=ALL), "instance", "category")
    # The mean over runs is without a limit and without pronouns.
    family = FAMILY if topk is None and not he_she else replace(FAMILY, measures=())
    return make_study(family, result, scores, missing=missing)


FAMILY: Family = Family(
    name="unqover",
    title="UnQover",
    order=4,
    description=(
        "UnQover measures which subject a model prefers when the context does not determine the "
        "answer. C is the preference for one of two subjects, from −1 to 1. γ is its mean for a "
        "subject; μ (bias intensity) and η (bias by count) are the size of such preferences. The "
        "positional error is how much an answer changes with the order of mention. The attributive "
        "error is how far negating the attribute is from exchanging the subjects."
    ),
    cautions=(
        "Names stand for genders, countries for people, and one noun for a religion or ethnicity. "
        "A name is a rough sign of who somebody is, and gender is binary in the data.",
        "Questions are underspecified on purpose, so that any preference is an error. They do not "
        "show how often such questions occur.",
    ),
    notes=(
        "C is a difference of probabilities: a subject is preferred to its partner for an "
        "attribute, whatever the order of mention, more than for the attribute's negation. 0 is "
        "no preference, or no probability for either.",
        "μ and η average sizes, so noise alone makes them greater than 0, the more the fewer "
        "instances a subject and an attribute have. Compare them only between the same prompts.",
        "Intervals (95%) are over attributes, for μ over subjects; they are pointwise. Fewer than "
        "10 of these have none. p values of subjects flip the signs of attributes and are adjusted "
        "for the number of subjects.",
    ),
    item="attribute",
    cluster="attribute",
    measures=(
        Measure(name="mu", text="Bias intensity μ", item="subject", plus=("mu",), limits=(0, 1)),
        Measure(
            name="eta",
            text="Bias by count η",
            item="subject–attribute pair",
            plus=("eta",),
            limits=(0, 1),
        ),
        *(
            Measure(
                name=name,
                text=text,
                plus=(name, "instances"),
                functions=ratio,
                limits=(0, 1),
            )
            for name, text in (
                ("abs_c", "Mean |C|"),
                ("positional", "Positional error"),
                ("attributive", "Attributive error"),
            )
        ),
    ),
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    prompts=with_prefix("unqover-"),
    example="unqover-gender",
    screen={
        "unqover": columns("category split mu mu_low mu_high eta abs_c positional attributive"),
        "counts": columns("category split coverage_8 coverage_10 instances missing"),
    },
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=unqover,
)
register(FAMILY)
