"""Minimal pairs: which of two sentences a model finds more probable."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure

if TYPE_CHECKING:
    from logitbank.analysis.families.pairs.metric import Pairs as Pairs
    from logitbank.analysis.families.pairs.metric import pairs_metric as pairs_metric
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.study import Study


def pairs(
    banks: "Banks",
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    group_by: Annotated[
        str | None, "Column to group by; by default bias_type, group, UID or linguistics_term."
    ] = None,
) -> "Study[Pairs]":
    """Measure how often the model prefers one sentence of a pair: accuracy or preference by group.

    Parameters
    ----------
    prompts
        Name of the prompt set; by default `crows-pairs`, or the only one with its columns.
    group_by
        Column of the prompts whose values are the groups.

    Other parameters are those of `logitbank.lambada`.

    Raises
    ------
    LogitbankError
        A missing bank or prompt set, or what `pairs_metric` refuses.
    """
    from logitbank.analysis.families.pairs import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    scores = read_scores(banks, prompts, models, family=FAMILY, cache=cache)
    result = metric.pairs_metric(scores, group_by=group_by)
    missing = missing_sentences(result.checkpoints, "sentence")
    return make_study(FAMILY, result, scores, missing=missing)


FAMILY = Family(
    name="pairs",
    title="Minimal pairs",
    order=6,
    description=(
        "The sentences of a pair differ in one thing. The score is how often the model finds the "
        "first one more probable: the good one of an acceptability test such as BLiMP (accuracy), "
        "or the more stereotyping one of CrowS-Pairs (preference). 50% is chance."
    ),
    cautions=(
        "A group with few pairs has a wide interval. CrowS-Pairs was written by crowd workers in "
        "the United States, and some of its pairs differ in more than the group or contain no "
        "stereotype.",
    ),
    notes=(
        "Intervals (95%) are over pairs, pointwise: they do not allow for the number of "
        "checkpoints. p is from the exact sign test against 50%, adjusted for the number of "
        "groups (Benjamini–Hochberg).",
    ),
    prompts=with_columns("pair", "side"),
    example="crows-pairs",
    screen={"pairs": columns("score_kind group score low high p_bh pairs neutral")},
    measures=(
        Measure(
            name="score",
            text="Score of pairs, percent",
            form=".1f",
            share=True,
            scale=100.0,
            reference=50.0,
        ),
    ),
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=pairs,
)
register(FAMILY)
