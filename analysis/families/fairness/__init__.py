"""Fairness: answers by gender, their distances, ranks, tests and change points."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns, with_companions
from logitbank.analysis.stats.measure import Measure

if TYPE_CHECKING:
    from logitbank.analysis.families.fairness.metric import Fairness as Fairness
    from logitbank.analysis.families.fairness.metric import fairness_metric as fairness_metric
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.study import Study


GOLD = ("male", "female", "not specified")
DELTA = Measure(
    name="delta", text="Gender gap Δ", form="+.3f", plus=("jsd_p female | female",),
    minus=("jsd_p male | male",), reference=0.0,
)  # fmt: skip
JSD_P = tuple(
    Measure(
        name="jsd_p",
        group=gold,
        text="JSD-P, scaled",
        plus=(f"jsd_p {gold} | {gold}",),
        limits=(0, 1),
    )
    for gold in GOLD[:2]
)
"""The error of each gendered answer; the gap is their difference."""
RANKS = tuple(
    Measure(name="average_rank", group=gold, text="Average Rank", plus=(f"rank | {gold}",))
    for gold in GOLD
)
GEOMETRIC_RANKS = tuple(
    Measure(
        name="geometric_rank", group=gold, text="Geometric mean rank", plus=(f"rank | {gold}",),
        link="geometric",
    )
    for gold in GOLD
)  # fmt: skip
ACCURACIES = tuple(
    Measure(name="accuracy", group=gold, text="Accuracy", plus=(f"top | {gold}",), share=True)
    for gold in GOLD
)
THREE_WAY = tuple(
    Measure(
        name="three_way_accuracy", group=gold, text="Accuracy among the options",
        plus=(f"first | {gold}",), share=True,
    )
    for gold in GOLD
)  # fmt: skip


def fairness(
    banks: "Banks",
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    bootstrap: Annotated[
        int, "Number of resamples of the sentences, for the steps of changes; 0 for none."
    ] = 1000,
) -> "Study[Fairness]":
    """Measure Average Rank, accuracy, JSD-P and the gender gap at every checkpoint.

    Two models are also compared with each other, on neutral prompts.

    Parameters
    ----------
    banks
        One or several banks, analysed together: folders, URLs, or open banks.
    prompts
        Name of the prompt set; by default `winobias`, or the only one with its columns.
    models
        Only these models.
    cache
        What the analyses of one report share.
    bootstrap
        As for `logitbank.analysis.fairness_metric`.

    Raises
    ------
    LogitbankError
        A missing bank or prompt set, or what `fairness_metric` refuses.
    """
    from logitbank.analysis.families.fairness import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    scores = read_scores(banks, prompts, models, family=FAMILY, cache=cache)
    result = metric.fairness_metric(scores, bootstrap=bootstrap)
    missing = missing_sentences(result.average_rank, "score")
    return make_study(FAMILY, result, scores, missing=missing)


FAMILY = Family(
    name="fairness",
    title="Fairness",
    order=1,
    description=(
        "Each prompt is a sentence with a pronoun, a question about the gender of somebody in it, "
        "and the answers male, female and not specified. The gender gap Δ is the error (JSD-P) "
        "of female answers minus that of male answers, from −1 to 1. 0 is fair; above 0, the error "
        "is higher for women."
    ),
    cautions=(
        "WinoBias has two genders and excludes people who are neither. Its 40 occupations and "
        "their proportions are those of the United States. Its sentences were written by hand "
        "from two templates, and one wording of the question names the options.",
        "Labour statistics decide which occupations count as stereotypical, not the model's "
        "training data.",
        "A test over sentences asks whether Δ is zero for this model, and it is not zero for "
        "untrained weights either. One run cannot show whether another run would have the same "
        "gap.",
    ),
    notes=(
        "Δ and JSD-P are scaled: divided by ½ ln 2, the largest JSD-P. The table jsd_parts also "
        "gives nats.",
        "Intervals (95%) are over sentences, with the occupations fixed. They are pointwise: they "
        "do not allow for the number of checkpoints.",
    ),
    prompts=with_companions(with_columns("sentence_id", "paired")),
    example="winobias",
    screen={
        "gap": columns("delta low high sd"),
        "average_rank": columns("gold average_rank low high skewed sd"),
        "geometric_rank": columns("gold geometric_rank low high"),
        "accuracy": columns("gold accuracy low high sd"),
        "tests": columns(
            "measure test p p_bh rank_biserial difference from_baseline from_baseline_low "
            "from_baseline_high"
        ),
        "specified": columns("gold probability low high prompts sentences missing"),
        "comparison": columns("other_model option test statistic p p_bh effect significant"),
        "change_points": columns(
            "change kind before step p_random_walk p_holm earliest latest mean_before mean_after"
        ),
    },
    item="prompt",
    cluster="sentence",
    measures=(DELTA, *RANKS, *GEOMETRIC_RANKS, *ACCURACIES, *THREE_WAY),
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=fairness,
)  # fmt: skip
register(FAMILY)
