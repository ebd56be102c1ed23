"""LAMBADA: the last word of a passage."""

from importlib import import_module

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import named
from logitbank.analysis.stats.measure import Measure, View

ACCURACY = Measure(name="acc", text="Accuracy", form=".1%", plus=("acc",), share=True)
PERPLEXITY = Measure(
    name="perplexity",
    text="Perplexity",
    form=",.3g",
    plus=("perplexity",),
    scale=-1.0,
    link="exp",
)

FAMILY = register(
    Family(
        name="lambada",
        title="LAMBADA",
        order=7,
        description=(
            "LAMBADA measures how often the model predicts the last word of a passage, and the "
            "perplexity of that word: language modelling ability, independent of bias."
        ),
        cautions=("LAMBADA is one measure of language modelling, on passages of English novels.",),
        notes=(
            "Intervals (95%) are over examples, pointwise: they do not allow for the number of "
            "checkpoints.",
        ),
        prompts=named("lambada"),
        example="lambada",
        item="example",
        screen={
            "lambada": columns("acc acc_low acc_high perplexity items"),
            "ties": columns("tied inexact"),
        },
        measures=(ACCURACY, PERPLEXITY),
        views={"lambada": View(ACCURACY, PERPLEXITY)},
        items=lambda scores: import_module(".metric", __name__).read_items(scores),
        tables=lambda scores, items: {"ties": import_module(".metric", __name__).read_ties(scores)},
        findings=lambda result: import_module(".findings", __name__).findings(result),
    )
)
