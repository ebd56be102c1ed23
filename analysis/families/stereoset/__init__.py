"""StereoSet: lms, ss and iCAT."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from logitbank.analysis.family import Family, columns, with_prefix

if TYPE_CHECKING:
    from logitbank.analysis.families.stereoset.metric import StereoSet
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.scan_cache import ScanCache
    from logitbank.analysis.study import Study

Rule = Literal["reference", "mean_prob", "sum_logprob", "mean_logprob", "geometric"]
"""How the log-probabilities of a candidate's tokens become one score. `reference` is `mean_prob`
for the tokens of a masked word and `geometric` for those of a causal model. Next-sentence scores
have one token, and their probability is the score under every rule."""


def stereoset(
    banks: "Banks" = (),
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    steps: Annotated[
        Sequence[str] | None, "Only these training steps of banks; `release` for a release."
    ] = None,
    predictions: Annotated[
        Sequence[str], "StereoSet prediction files, as PATH or NAME=PATH with the model's name."
    ] = (),
    gold: Annotated[str | None, "StereoSet's file with the labels, for prediction files."] = None,
    score: Annotated[
        Sequence[Rule], "How the log-probabilities of a candidate's tokens become one score."
    ] = ("reference",),
    bootstrap: Annotated[
        int, "Number of resamples of the target terms; 0 for no intervals."
    ] = 1000,
    save_predictions: Annotated[
        str | None, "File (.json) or folder for the scores of banks, as prediction files."
    ] = None,
) -> "Study[StereoSet]":
    """Measure lms, ss and iCAT of StereoSet, from banks and prediction files.

    Parameters
    ----------
    banks
        One or several banks, analysed together: folders, URLs, or open banks.
    prompts
        Names of prompt sets in the banks; by default all that begin with `stereoset`.
    models
        Only these models of the banks.
    cache
        What a report has already read; unused.
    steps
        Only these checkpoints of the banks: training steps, or `release`.
    predictions
        Prediction files, as a path or NAME=PATH with the model's name.
    gold
        StereoSet's file with the labels, for prediction files.
    score
        One or several rules by which tokens become a score; each has results of its own.
    bootstrap
        Number of resamples of the target terms; 0 for no intervals.
    save_predictions
        File or folder for the scores of banks, as prediction files.

    Raises
    ------
    LogitbankError
        A missing or invalid source, or what `stereoset_metric` refuses.
    """
    from logitbank.analysis.families.stereoset.metric import analyze_stereoset

    return analyze_stereoset(
        banks, prompts=prompts, models=models, steps=steps, predictions=predictions, gold=gold,
        score=score, bootstrap=bootstrap, save_predictions=save_predictions,
    )  # fmt: skip


FAMILY = Family(
    name="stereoset",
    title="StereoSet",
    order=3,
    description=(
        "Each example has a stereotyped, an anti-stereotyped and an unrelated candidate. lms is "
        "how often the related ones are preferred to the unrelated one (100 is best). ss is how "
        "often the stereotyped one is preferred to the anti-stereotyped one (50 is no preference). "
        "iCAT combines both (100 is best)."
    ),
    cautions=(
        "StereoSet was written by crowd workers in the United States. Many of its examples are "
        "disputed, and its stereotypes are not those of other places. Translations keep the "
        "categories of the original.",
        "A stereotype score of 50 is a mean and can hide terms with opposite preferences: see "
        "ss_sd, their standard deviation. Ties count against the stereotype: see the table of "
        "ties.",
    ),
    notes=(
        "Intervals (95%) resample target terms and are pointwise, one checkpoint at a time. Those "
        "of a domain with few terms are rough; fewer than 10 terms have none.",
        "intersentence_causal is an extension: the probability of a candidate given its context. "
        "It is in no other number and is not comparable with next-sentence scores.",
    ),
    prompts=with_prefix("stereoset"),
    screen={
        "scores": columns(
            "language condition score task domain lms ss icat icat_low icat_high terms examples"
        ),
        "differences": columns("condition task domain lms ss icat icat_low icat_high"),
    },
)
