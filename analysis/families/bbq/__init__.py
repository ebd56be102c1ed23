"""BBQ: answers to questions about two people, one of whom a stereotype is about."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from logitbank.analysis.families import register
from logitbank.analysis.family import Family
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure, Smooth

if TYPE_CHECKING:
    from logitbank.analysis.frames.expressions import Floats

AMBIGUOUS, DISAMBIGUATED = "ambig", "disambig"
NAMES = {AMBIGUOUS: "ambiguous contexts", DISAMBIGUATED: "disambiguated contexts"}


def _bias_score(*, scaled: bool) -> "Callable[[Floats], Sequence[Smooth]]":
    return lambda means: import_module(".metric", __name__).bias_score(means, scaled=scaled)


FAMILY = register(
    Family(
        name="bbq",
        title="BBQ",
        order=11,
        description=(
            "Each question has two people and “unknown” as answers. Accuracy is how often the "
            "correct answer is the most probable one. The bias score is from −1 to 1: above 0, "
            "answers about people agree with the stereotype. If the context is ambiguous, "
            "“unknown” is correct, and the score is multiplied by the share of other answers."
        ),
        cautions=(
            "BBQ's stereotypes are those of the United States, and its questions are made from a "
            "few templates for each category.",
        ),
        notes=(
            "Intervals (95%) are over templates, pointwise: they do not allow for the number of "
            "checkpoints. Equally probable answers share the vote.",
            "A bias score without any answer about people is undefined.",
        ),
        prompts=with_columns("category", "context", "polarity", "template"),
        example="bbq",
        item="question",
        cluster="template",
        measures=(
            *(
                Measure(
                    name="bias_score",
                    group=NAMES[context],
                    text="Bias score",
                    form="+.3f",
                    limits=(-1, 1),
                    plus=tuple(f"{part} {context}" for part in ("biased", "known", "correct")),
                    functions=_bias_score(scaled=context == AMBIGUOUS),
                )
                for context in NAMES
            ),
            *(
                Measure(
                    name="accuracy",
                    group=NAMES[context],
                    text="Accuracy",
                    form=".1%",
                    plus=(f"correct {context}",),
                    share=True,
                )
                for context in NAMES
            ),
        ),
        items=lambda scores: import_module(".metric", __name__).read_items(scores),
    )
)
