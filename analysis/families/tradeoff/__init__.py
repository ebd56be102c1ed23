"""Trade-offs: a bias against an ability, checkpoint by checkpoint."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.family import Family, columns
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.analysis.families.tradeoff.metric import TradeOff
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.study import Study

TASK = "lambada_openai"
LAMBADA, WINOBIAS = "lambada", "winobias"


def tradeoff(
    banks: "Banks",
    *,
    prompts: Sequence[str] = (LAMBADA, WINOBIAS),
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    performance: Annotated[
        Sequence[str],
        "Result file of lm-evaluation-harness, or a folder of them; repeatable. By default LAMBADA "
        "of the banks.",
    ] = (),
    task: Annotated[str, "Task to read from result files."] = TASK,
    metric: Annotated[str, "Metric to read from result files."] = "acc",
    max_accuracy_loss: Annotated[
        float, "Maximum tolerated performance loss (percentage points)."
    ] = 2.0,
    pair: Annotated[
        tuple[int, int] | None, "Two steps to compare, the later one first: LAST,EARLY."
    ] = None,
    match: Annotated[
        Mapping[str, str] | None,
        "Model of the banks and its counterpart in the result files, as MODEL=OTHER; repeatable.",
    ] = None,
    bootstrap: Annotated[int, "Number of bootstrap resamples; 0 for no intervals."] = 1000,
) -> "Study[TradeOff]":
    """Compare performance and bias at every checkpoint.

    Parameters
    ----------
    banks
        One or several banks, analysed together: folders, URLs, or open banks.
    prompts
        Names of two prompt sets: that of LAMBADA and that of WinoBias.
    models
        Only these models.
    cache
        What the analyses of one report share.
    performance
        Result files of lm-evaluation-harness, or their folders. Without any, LAMBADA of the banks.
    task, metric
        What to read from result files.
    max_accuracy_loss, pair, match
        As for `logitbank.analysis.tradeoff_metric`.
    bootstrap
        Number of resamples of sentences and examples; 0 for no intervals.

    The gap is that of `logitbank.fairness`. `logitbank.analysis.tradeoff_metric` compares curves of
    other measures.

    Raises
    ------
    LogitbankError
        A missing source, or what the curves and `tradeoff_metric` refuse.
    """
    from dataclasses import replace

    import polars as pl

    from logitbank.analysis.families.fairness.metric import answer_jsd_p, fairness_gap
    from logitbank.analysis.families.tradeoff import metric as sources
    from logitbank.analysis.families.tradeoff.findings import interval_note
    from logitbank.analysis.frames.banks import open_banks
    from logitbank.analysis.frames.expected import partial_notes
    from logitbank.analysis.frames.gender_answers import read_winobias
    from logitbank.analysis.frames.reader import ScanCache, Scores
    from logitbank.analysis.results.studies import make_study

    files = sources.result_files(performance)
    if not files and (task, metric) != (TASK, "acc"):
        raise UsageError("--task and --metric are read from result files: add --performance.")
    if len(prompts) != 2:
        raise UsageError(
            "--prompts needs two prompt sets, that of LAMBADA and that of WinoBias, and has "
            f"{len(prompts)}: {', '.join(prompts)}."
        )
    lambada_prompts, gap_prompts = prompts
    read = [gap_prompts] if files else [lambada_prompts, gap_prompts]
    opened, cache = open_banks(banks, models=models, prompts=read), cache or ScanCache()
    gap_source = Scores(opened, gap_prompts, models, cache)
    if files:
        performances = sources.performance_files(files, task, metric)
    else:
        lambada_source = Scores(opened, lambada_prompts, models, cache)
        performances = sources.lambada_curve(lambada_source, resamples=bootstrap)
    measure = "LAMBADA" if not files or task.startswith("lambada") else task
    result = sources.tradeoff_metric(
        performances,
        fairness_gap(gap_source, bootstrap),
        metric=f"{measure} {'accuracy' if metric == 'acc' else metric}",
        gap_name="gap |Δ|, JSD-P scaled",
        max_accuracy_loss=max_accuracy_loss,
        pair=pair,
        match=match,
        resamples=bootstrap,
    )
    result = replace(result, parts=answer_jsd_p(read_winobias(gap_source)))
    study = make_study(
        FAMILY, result, prompts=read, banks=opened, models=models,
        missing=partial_notes(opened, read, models),
        files=[pl.DataFrame({"file": [path.name]}) for path in files],
    )  # fmt: skip
    return replace(study, notes=(interval_note(result), *study.notes))


FAMILY = Family(
    name="tradeoff",
    title="Performance and fairness",
    order=8,
    description=(
        "Performance and bias of every checkpoint, and how much performance a smaller gap costs."
    ),
    cautions=(
        "The curve joins existing checkpoints. It does not show what training for fairness would "
        "reach.",
        "A checkpoint chosen for its gap looks fairer here than elsewhere, because it is the "
        "smallest of several measured gaps. Among 154 checkpoints whose gap only fluctuates, such "
        "a choice promises 6 to 16% more fairness: look at the checkpoints beside it.",
    ),
    prompts=lambda sets: [(LAMBADA, WINOBIAS)] if {LAMBADA, WINOBIAS} <= {*sets} else [],
    screen={
        "tradeoff": columns("performance gap"),
        "choices": columns(
            "max_accuracy_loss best_step performance gap fairness_change chosen_share"
        ),
        "pairs": columns(
            "before after performance_change performance_low performance_high fairness_change "
            "fairness_low fairness_high"
        ),
    },
)
