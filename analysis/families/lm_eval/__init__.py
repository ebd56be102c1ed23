"""Tasks of lm-evaluation-harness, which processes the results itself."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import Columns
from logitbank.analysis.stats.measure import Measure

if TYPE_CHECKING:
    from logitbank.analysis.families.lm_eval.metric import LmEval as LmEval
    from logitbank.analysis.families.lm_eval.metric import lm_eval_metric as lm_eval_metric
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.study import Study


def lm_eval(
    banks: "Banks",
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    include: Annotated[
        str | None, "Folder with your own tasks, whose Python functions run."
    ] = None,
    bootstrap: Annotated[
        int, "Resamples for standard errors of metrics that are no means; 100,000 in the harness."
    ] = 1000,
    save_results: Annotated[
        str | None, "Folder for the harness's own result files, one folder per checkpoint."
    ] = None,
) -> "Study[LmEval]":
    """Evaluate tasks of lm-evaluation-harness at every checkpoint, without a model.

    Parameters
    ----------
    prompts
        Names of prompt sets; by default all that `lm-eval:…` has made.
    include
        Folder with tasks of your own, as in `extract`, whose Python functions run. By default that
        of the environment variable `LOGITBANK_TASKS`.
    bootstrap
        Resamples for standard errors of metrics without a formula, such as perplexities.
    save_results
        Folder for the results and samples that the harness writes for a model.

    `banks`, `models` and `cache` are those of `logitbank.fairness`.

    Raises
    ------
    MissingExtraError
        lm_eval is not installed.
    LogitbankError
        A missing bank, prompt set or task; existing results in the folder.
    """
    from dataclasses import replace
    from functools import partial

    from logitbank.analysis.families.lm_eval import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    scores = read_scores(banks, prompts, models, family=FAMILY, cache=cache)
    result = metric.lm_eval_metric(
        scores, include=include, bootstrap=bootstrap, save_results=save_results
    )
    missing = missing_sentences(result.checkpoints, "request", "task")
    family = replace(FAMILY, items=partial(metric.read_items, include=include))  # for several runs
    return make_study(family, result, scores, missing=[*missing, *result.changed])


def _requests(sets: Columns) -> list[tuple[str, ...]]:
    """All prompt sets with requests of the harness, together."""
    chosen = tuple(name for name in sorted(sets) if {"lm_eval", "task_config"} <= {*sets[name]})
    return [chosen] if chosen else []


FAMILY = Family(
    name="lm_eval",
    title="lm-evaluation-harness",
    order=20,
    description=(
        "Tasks of lm-evaluation-harness: prompts, filters, metrics and aggregation are the "
        "harness's own, and the bank answers in the place of the model."
    ),
    cautions=(
        "A task is one set of prompts and one way of scoring. Another wording or number of "
        "examples may give other values.",
    ),
    notes=(
        "Values and standard errors are those of the harness. Intervals (95%, pointwise) and "
        "changes are over documents, for metrics that are means over documents.",
        "A token that shares the largest logit with another is not greedy. The harness takes one "
        "of the two.",
    ),
    prompts=_requests,
    example="lm-eval:TASK",
    screen={
        "lm_eval": columns(
            "task filter metric value stderr from_baseline from_baseline_low from_baseline_high "
            "documents"
        ),
    },
    measures=(
        Measure(name="value", text="Main metric"),
        Measure(name="value", group="further", text="Metric", plus=("further",)),
    ),
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=lm_eval,
)
register(FAMILY)
