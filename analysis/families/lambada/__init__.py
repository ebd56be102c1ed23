"""LAMBADA: the last word of a passage."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logitbank.analysis.family import Family, SaveResults, columns, imported, named

if TYPE_CHECKING:
    from logitbank.analysis.families.lambada.metric import Lambada
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.scan_cache import ScanCache
    from logitbank.analysis.study import Study


def lambada(
    banks: "Banks",
    *,
    prompts: str = "lambada",
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    save_results: SaveResults = None,
    partial: bool = False,
) -> "Study[Lambada]":
    """Measure accuracy and perplexity of LAMBADA's last words at every checkpoint.

    Parameters
    ----------
    banks
        One or several banks, analysed together: folders, URLs, or open banks.
    prompts
        Name of the prompt set.
    models
        Only these models.
    cache
        What a report has already read.
    save_results
        Folder for result files in the layout of lm-evaluation-harness, one per checkpoint.
    partial
        Also save results of checkpoints that lack examples.

    Raises
    ------
    LogitbankError
        A missing bank or prompt set, what `lambada_metric` refuses, or partial results to save.
    """
    from logitbank.analysis.families.lambada.metric import analyze_lambada

    return analyze_lambada(
        banks, prompts=prompts, models=models, cache=cache, save_results=save_results,
        partial=partial,
    )  # fmt: skip


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
    screen={"lambada": columns("acc low high from_baseline perplexity examples tied")},
    compared=imported(__name__, "compared"),
)
