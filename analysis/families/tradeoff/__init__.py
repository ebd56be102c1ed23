"""Trade-offs: a bias against an ability, checkpoint by checkpoint."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.family import CHANGE_POINTS, Columns, Family, Gap, columns, families

if TYPE_CHECKING:
    from logitbank.analysis.families.tradeoff.metric import TradeOff
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.scan_cache import ScanCache
    from logitbank.analysis.study import Study

TASK = "lambada_openai"


def tradeoff(
    banks: "Banks" = (),
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    performance: Annotated[
        Sequence[str],
        "Result files of lm-evaluation-harness, tables, their folder or a pattern; by default "
        "LAMBADA of the banks.",
    ] = (),
    task: Annotated[str, "Task to read from result files."] = TASK,
    metric: Annotated[str, "Metric or column to read; of a bank acc or perplexity."] = "acc",
    gap: Annotated[
        str | None,
        "Gap of the banks, such as fairness or stereotype; a column of --fairness-table.",
    ] = None,
    fairness_table: Annotated[
        str | None, "CSV or Parquet table with model, step and the gap, in place of a bank's."
    ] = None,
    where: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | None = None,
    lower_is_better: bool = False,
    max_accuracy_loss: Annotated[
        float | None, "Maximum tolerated performance loss (percentage points); else 1, 2 and 5."
    ] = None,
    pair: tuple[int, int] | None = None,
    from_step: int | None = None,
    bootstrap: Annotated[int, "Number of bootstrap resamples; 0 for no intervals."] = 1000,
) -> "Study[TradeOff]":
    """Set performance against fairness, checkpoint by checkpoint.

    Parameters
    ----------
    banks
        A bank or several: folders, URLs, or open banks. Result files (.json) and tables (.csv,
        .parquet) among them are further `performance`, so that a shell may expand
        `--performance results/*.json`.
    prompts
        Names of two prompt sets: that of LAMBADA and that of the gap.
    models
        Only these models.
    cache
        What a report has already read.
    performance
        Result files of lm-evaluation-harness, tables, folders of result files, or patterns. Without
        any, LAMBADA of the banks.
    task, metric
        What to read from result files; in a table the metric or column.
    gap
        `fairness`, `stereotype`, `sa_gender` or another gap that a family measures; with
        `fairness_table` its column, `value` by default.
    fairness_table
        CSV or Parquet table with model, step and the gap, in place of one from a bank.
    where
        Values that rows of tables of performance must have in other columns.
    bootstrap
        Resamples of sentences and examples; 0 gives no intervals.

    Other parameters are those of `logitbank.analysis.tradeoff_metric`.

    Raises
    ------
    LogitbankError
        A missing source, or what the curves and `tradeoff_metric` refuse.
    """
    from logitbank.analysis.families.tradeoff.metric import analyze_tradeoff

    return analyze_tradeoff(
        banks, prompts=prompts, models=models, cache=cache, performance=performance, task=task,
        metric=metric, gap=gap, fairness_table=fairness_table, where=where, rename=rename,
        lower_is_better=lower_is_better, max_accuracy_loss=max_accuracy_loss, pair=pair,
        from_step=from_step, bootstrap=bootstrap,
    )  # fmt: skip


def gaps() -> dict[str, Gap]:
    """The gaps of all families, by the names that `gap` takes."""
    return {name: gap for family in families().values() for name, gap in family.gaps.items()}


def _prompts(columns: Columns) -> list[tuple[str, ...]]:
    """LAMBADA, and the first prompt set that has a gap."""
    with_gap = [gap.prompts for gap in gaps().values() if gap.prompts in columns]
    return [("lambada", with_gap[0])] if with_gap and "lambada" in columns else []


FAMILY = Family(
    name="tradeoff",
    title="Performance and fairness",
    order=8,
    description=(
        "Performance and bias of every checkpoint: which checkpoints no other beats in both, and "
        "how much performance a smaller gap costs."
    ),
    cautions=(
        "The curve joins existing checkpoints. It does not show what training for fairness would "
        "reach.",
        "A checkpoint chosen for its gap looks fairer here than elsewhere, because it is the "
        "smallest of several measured gaps. Among 154 checkpoints whose gap only fluctuates, such "
        "a choice promises 6 to 16% more fairness: look at the checkpoints beside it.",
    ),
    notes=(CHANGE_POINTS,),
    prompts=_prompts,
    screen={
        "tradeoff": columns("performance gap on_front front_share"),
        "choices": columns(
            "max_accuracy_loss best_step performance gap fairness_change chosen_share"
        ),
        "pairs": columns(
            "before after performance_change performance_low performance_high fairness_change "
            "fairness_low fairness_high"
        ),
        "change_points": columns(
            "curve change kind p_random_walk p_holm earliest latest mean_before mean_after"
        ),
    },
)
