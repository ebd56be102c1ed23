"""LAMBADA: the last word of a passage."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import named
from logitbank.analysis.stats.measure import Measure

if TYPE_CHECKING:
    from logitbank.analysis.families.lambada.metric import Lambada as Lambada
    from logitbank.analysis.families.lambada.metric import lambada_metric as lambada_metric
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.study import Study


def lambada(
    banks: "Banks",
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    save_results: Annotated[
        str | None, "Folder for result files in the format of lm-evaluation-harness."
    ] = None,
) -> "Study[Lambada]":
    """Measure accuracy and perplexity of LAMBADA's last words at every checkpoint.

    Parameters
    ----------
    banks
        One or several banks, analysed together: folders, URLs, or open banks.
    prompts
        Name of the prompt set; by default `lambada`.
    models
        Only these models.
    cache
        What the analyses of one report share.
    save_results
        Folder for result files in the layout of lm-evaluation-harness, one per checkpoint. They
        are written if no example is missing.

    Raises
    ------
    LogitbankError
        A missing bank or prompt set, what `lambada_metric` refuses, or partial results to save.
    """
    from logitbank.analysis.families.lambada import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    scores = read_scores(banks, prompts, models, family=FAMILY, cache=cache)
    result = metric.lambada_metric(scores)
    if save_results is not None:
        metric.write_results(result, save_results)
    missing = missing_sentences(result.checkpoints, "example")
    return make_study(FAMILY, result, scores, missing=missing)


FAMILY = Family(
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
    screen={"lambada": columns("acc low high from_baseline perplexity examples tied")},
    measures=(
        Measure(name="acc", text="Accuracy", form=".1%", plus=("acc",), share=True),
        Measure(
            name="perplexity",
            text="Perplexity",
            form=",.3g",
            plus=("perplexity",),
            scale=-1.0,
            link="exp",
        ),
    ),
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=lambada,
)
register(FAMILY)
