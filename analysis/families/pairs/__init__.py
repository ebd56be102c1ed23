"""Minimal pairs: which of two sentences a model finds more probable."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure, View, ratio

if TYPE_CHECKING:
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.results.measured import Measured
    from logitbank.analysis.study import Study

DIRECTIONS = ("stereo", "antistereo")
SCORE = Measure(
    name="score", text="First sentence preferred", form=".1f%", plus=("preferred",), share=True,
    scale=100.0, reference=50.0, meaning="chance",
)  # fmt: skip
MEASURES = (
    SCORE,
    *(
        Measure(
            name=f"{name}_score", text=f"Preferred in {name} pairs", form=".1f%", scale=100.0,
            plus=(f"preferred {name}", f"different {name}"), reference=50.0, meaning="chance",
            functions=ratio,
        )
        for name in DIRECTIONS
    ),
    Measure(
        name="likelihood_diff", text="Size of the difference, nats", form=".2f", plus=("size",)
    ),
)  # fmt: skip


def pairs(
    banks: "Banks",
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    group_by: Annotated[
        str | None, "Column to group by; by default bias_type, group, UID or linguistics_term."
    ] = None,
) -> "Study[Measured]":
    """Measure how often the model prefers one sentence of a pair: accuracy or preference by group.

    Parameters
    ----------
    prompts
        Name of the prompt set; by default `crows-pairs`, or the only one with its columns.
    group_by
        Column of the prompts whose values are the groups.

    `banks`, `models` and `cache` are those of `logitbank.fairness`.

    Raises
    ------
    LogitbankError
        A missing bank or prompt set, or what `read_items` of its module `metric` refuses.
    """
    from logitbank.analysis.families.pairs import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.studies import measured_study

    scores = read_scores(banks, prompts, models, family=FAMILY, cache=cache)
    return measured_study(metric.family_of(scores, group_by), scores)


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
        "Scores of causal models are over whole sentences, and those of masked models over tokens "
        "under a mask: they are not comparable.",
    ),
    notes=(
        "Intervals (95%) are over pairs, pointwise: they do not allow for the number of "
        "checkpoints. p is from the exact sign test against 50%, adjusted for the number of "
        "groups (Benjamini–Hochberg).",
    ),
    prompts=with_columns("pair", "side"),
    example="crows-pairs",
    item="pair",
    screen={
        "pairs": columns(
            "group score score_low score_high stereo_score antistereo_score likelihood_diff items"
        ),
        "tests": columns("group pairs neutral p p_bh unscored"),
    },
    measures=MEASURES,
    views={"pairs": View(*MEASURES)},
    items=lambda scores: import_module(".metric", __name__).read_items(scores).pooled("group"),
    tables=lambda scores, items: {"tests": import_module(".metric", __name__).sign_tests(items)},
    analyze=pairs,
)
register(FAMILY)
