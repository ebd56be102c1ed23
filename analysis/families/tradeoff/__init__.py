"""Trade-offs: a bias against an ability, checkpoint by checkpoint."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.families.fairness import DELTA, JSD_P
from logitbank.analysis.families.lambada import ACCURACY
from logitbank.analysis.family import Family, columns
from logitbank.analysis.stats.measure import Measure
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.analysis.families.tradeoff.metric import TradeOff as TradeOff
    from logitbank.analysis.families.tradeoff.metric import tradeoff_metric as tradeoff_metric
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.study import Study

LAMBADA, WINOBIAS = "lambada", "winobias"


def tradeoff(
    banks: "Banks",
    *,
    prompts: Sequence[str] = (LAMBADA, WINOBIAS),
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    performance: Annotated[
        Sequence[str],
        "Task of the banks, as lm-eval:NAME; or result file of lm-evaluation-harness, or a folder "
        "of them, as PATH or MODEL=PATH; repeatable. By default LAMBADA of the banks.",
    ] = (),
    max_accuracy_loss: Annotated[
        float, "Maximum tolerated performance loss (percentage points)."
    ] = 2.0,
    pair: Annotated[
        tuple[int, int] | None, "Two steps to compare, the later one first: LAST,EARLY."
    ] = None,
) -> "Study[TradeOff]":
    """Compare performance and bias at every checkpoint.

    Parameters
    ----------
    prompts
        Names of two prompt sets: that of LAMBADA and that of WinoBias.
    performance
        A prompt set `lm-eval:NAME` of the banks; or result files of lm-evaluation-harness, or
        their folders, as a path or MODEL=PATH with the model's name in the banks. Of files, the
        accuracy of LAMBADA, else that of their only task. Without any, LAMBADA of the banks.
    max_accuracy_loss, pair
        As for `logitbank.analysis.tradeoff_metric`.

    `banks`, `models` and `cache` are those of `logitbank.fairness`, and so is the gap.
    `logitbank.analysis.tradeoff_metric` compares curves of other measures.

    Raises
    ------
    LogitbankError
        A missing source, or what the curves and `tradeoff_metric` refuse.
    """
    from dataclasses import replace

    import polars as pl

    from logitbank.analysis.families.lambada.metric import read_items
    from logitbank.analysis.families.lm_eval.metric import ANY, task_items
    from logitbank.analysis.families.tradeoff import metric as sources
    from logitbank.analysis.families.tradeoff.tables import Quantity
    from logitbank.analysis.frames.banks import open_banks
    from logitbank.analysis.frames.gender_answers import read_winobias
    from logitbank.analysis.frames.reader import ScanCache, Scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    in_banks = [name for name in performance if name.startswith("lm-eval:")]
    if in_banks and len(performance) > 1:
        raise UsageError("--performance is one task of the banks, or result files. Name one.")
    if len(prompts) != 2:
        raise UsageError(
            "--prompts needs two prompt sets, that of LAMBADA and that of WinoBias, and has "
            f"{len(prompts)}: {', '.join(prompts)}."
        )
    files = [] if in_banks else sources.result_files(performance)
    able_prompts, gap_prompts = (in_banks or prompts)[0], prompts[1]
    read = [gap_prompts] if files else [able_prompts, gap_prompts]
    opened, cache = open_banks(banks, models=models, prompts=read), cache or ScanCache()
    able_source, gap_source = (
        Scores(opened, (name,), models, cache) for name in (able_prompts, gap_prompts)
    )
    measure = replace(ACCURACY, name=PERFORMANCE.name, text="LAMBADA accuracy", item="example")
    if files:
        able = sources.performance_files(files)
    elif in_banks:
        items = task_items(able_source)
        text = sources.metric_name(able_prompts, items.axes["metric"][0])
        measure = replace(PERFORMANCE, text=text, item="document", plus=ANY.plus, share=ANY.share)
        able = Quantity.of_items(items.pooled("metric"), measure)
    else:
        able = Quantity.of_items(read_items(able_source), measure)
    result = sources.trade_off(
        able,
        Quantity.of_items(read_winobias(gap_source).items, DELTA, *JSD_P),
        gap_name="gap |Δ|, JSD-P scaled",
        max_accuracy_loss=max_accuracy_loss,
        pair=pair,
    )
    missing = [
        note
        for measure in result.shown[:2]
        for note in missing_sentences(
            result.measures.filter(measure=measure.key).with_columns(of=pl.lit(measure.text)),
            measure.item or FAMILY.item,
            "of",
        )
    ]
    return make_study(
        FAMILY, result, Scores(opened, tuple(read), models), missing=missing,
        files=[pl.DataFrame({"file": [path.name]}) for _, path in files],
    )  # fmt: skip


PERFORMANCE = Measure(name="performance", text="Performance", form=".1%", share=True)
FAMILY: Family = Family(
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
    notes=(
        "Intervals (95%, pointwise) are those of the two analyses, over examples and sentences. "
        "Between two steps they are paired. With result files they come from standard errors, and "
        "checkpoints count as independent.",
    ),
    prompts=lambda sets: [(LAMBADA, WINOBIAS)] if {LAMBADA, WINOBIAS} <= {*sets} else [],
    screen={
        "tradeoff": columns("performance gap"),
        "pairs": columns(
            "choice before after performance_change performance_low performance_high "
            "fairness_change fairness_low fairness_high"
        ),
    },
    item="score",
    cluster="sentence",
    measures=(PERFORMANCE, DELTA, *JSD_P),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=tradeoff,
)
register(FAMILY)
