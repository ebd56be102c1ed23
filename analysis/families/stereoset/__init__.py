"""StereoSet: lms, ss and iCAT."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_prefix
from logitbank.analysis.stats.measure import Measure
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.analysis.families.stereoset.metric import StereoSet as StereoSet
    from logitbank.analysis.families.stereoset.metric import stereoset_metric as stereoset_metric
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.study import Study

Rule = Literal["reference", "sum_logprob", "mean_logprob"]
"""How the log-probabilities of a candidate's tokens become one score; see `read_candidates`."""


def stereoset(
    banks: "Banks" = (),
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    steps: Annotated[
        str | None, "Steps to include: log, START:STOP:STRIDE, a list, or release."
    ] = None,
    predictions: Annotated[
        Sequence[str],
        "StereoSet prediction file, as PATH or NAME=PATH; repeatable.",
    ] = (),
    gold: Annotated[
        str | None,
        "File with the labels in StereoSet's format, as PATH or LANGUAGE=PATH, for prediction "
        "files.",
    ] = None,
    score: Annotated[
        Sequence[Rule], "Score of a candidate from its tokens' log-probabilities; repeatable."
    ] = ("reference",),
) -> "Study[StereoSet]":
    """Measure lms, ss and iCAT of StereoSet, from banks and prediction files.

    Parameters
    ----------
    prompts
        Names of prompt sets in the banks; by default all that begin with `stereoset`.
    steps
        Only these training steps of the banks, as `--steps` takes them.
    predictions
        Prediction files, as a path or NAME=PATH with the model's name.
    gold
        File with the labels in StereoSet's format, for prediction files: PATH or LANGUAGE=PATH.
    score
        One or several rules by which tokens become a score; each has results of its own.

    `banks` and `models` are those of `logitbank.fairness`.

    Raises
    ------
    LogitbankError
        A missing or invalid source, or what `stereoset_metric` refuses.
    """
    from dataclasses import replace
    from itertools import chain
    from pathlib import Path

    import polars as pl

    from logitbank.analysis.families.stereoset import metric
    from logitbank.analysis.frames.banks import listed, require_bank
    from logitbank.analysis.frames.candidates import BOTH, read_candidates
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.frames.stereoset_files import file_candidates
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    rules, predictions = listed(score) or (), listed(predictions) or ()
    if not banks and not predictions:
        raise UsageError("StereoSet needs a bank, or prediction files (--predictions and --gold).")
    require_bank(banks, prompts=prompts, models=models, steps=steps)
    files = file_candidates(predictions, gold)
    scores = read_scores(banks, prompts, models, steps, family=FAMILY)
    candidates = read_candidates(scores, rules) if scores.banks else ()
    result = metric.stereoset_metric(chain(candidates, files))
    table = pl.DataFrame({"predictions": list(predictions), "gold": gold and Path(gold).name})
    missing = missing_sentences(result.tasks.filter(pl.col("task") != BOTH), "example", "task")
    # The mean over runs is of the reference score.
    family = FAMILY if [*rules] == ["reference"] else replace(FAMILY, measures=())
    return make_study(family, result, scores, missing=missing, files=[table] if files else [])


FAMILY: Family = Family(
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
        "Intervals (95%) are over target terms and pointwise, one checkpoint at a time. Those of a "
        "domain with few terms are rough; fewer than 10 terms have none.",
        "intersentence_causal is an extension: the probability of a candidate given its context. "
        "It is in no other number and is not comparable with next-sentence scores.",
    ),
    item="target term",
    measures=(
        Measure(
            name="ss",
            text="Stereotype score",
            form=".1f",
            plus=("ss",),
            limits=(0, 100),
            reference=50.0,
            meaning="no preference",
        ),
        Measure(
            name="lms",
            text="lms",
            form=".1f",
            plus=("lms",),
            limits=(0, 100),
            reference=50.0,
            meaning="random",
        ),
        Measure(
            name="icat",
            text="iCAT",
            form=".1f",
            plus=("ss", "lms"),
            functions=lambda means: import_module(".metric", __name__).icat_branches(means),
            limits=(0, 100),
            reference=50.0,
            meaning="random",
        ),
    ),
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    prompts=with_prefix("stereoset"),
    example="stereoset-intra",
    screen={
        "scores": columns("task domain ss lms icat icat_low icat_high language condition score"),
        "differences": columns("condition task domain measure difference low high plain value"),
    },
    charts=lambda result: import_module("logitbank.analysis.results.measured").charts(
        FAMILY, result.headline
    ),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=stereoset,
)
register(FAMILY)
