"""Performance against fairness over training: what a fairer checkpoint costs.

Performance is LAMBADA of a bank, or comes from result files; the gap is that of fairness.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from logitbank.analysis.families.fairness import DELTA
from logitbank.analysis.families.tradeoff import FAMILY, PERFORMANCE
from logitbank.analysis.families.tradeoff.tables import (
    Quantity,
    common_rows,
    curve_table,
    pair_table,
)
from logitbank.analysis.family import Family
from logitbank.analysis.frames.input_files import named_file
from logitbank.analysis.frames.match import MOST_NAMES, listed_models, match_models
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.harness import main_task, read_harness
from logitbank.analysis.results.measured import Measured, changes_of
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.shares import Z95
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name

SCHEMA = pl.Schema({
    **CHECKPOINT_SCHEMA,
    **dict.fromkeys(("value", "stderr", "low", "high"), pl.Float64),
})  # fmt: skip


def result_files(sources: Sequence[str | Path]) -> list[tuple[str, Path]]:
    """Files that are named, as a path or MODEL=PATH, and the result files in folders: their paths,
    each with the model's name, or "".
    """
    files: list[tuple[str, Path]] = []
    for model, path in map(named_file, map(str, sources)):
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(
                f"The folder {path} has no .json file: name result files or their folder."
            )
        files += [(model, each) for each in inside]
    return files


def performance_files(files: Sequence[tuple[str, Path]]) -> Quantity:
    """The performance curve of models in result files of lm-evaluation-harness.

    It is the accuracy of LAMBADA, else that of the only task of all files. Without an accuracy, it
    is the only metric of that task. Files with a model's name are about that model.

    Raises
    ------
    UsageError
        What `read_harness` refuses; files with several metrics and no accuracy, or of which some
        lack it.
    """
    paths = [path for _, path in files]
    task, parts = main_task(paths), list[pl.DataFrame]()
    for name in dict.fromkeys(name for name, _ in files):
        own = read_harness([path for other, path in files if other == name], task=task)
        parts.append(own.with_columns(model=pl.lit(name)) if name else own)
    table = pl.concat(parts)
    metrics = table["metric"].unique().sort().to_list()
    metric = "acc" if "acc" in metrics else metrics[0]
    if metric != "acc" and len(metrics) > 1:
        raise UsageError(
            f"{task} has no accuracy, but {', '.join(metrics)} in {paths[0]}. Choose one in "
            "Python: `read_harness` and `tradeoff_metric` of logitbank.analysis."
        )
    of_metric = table.filter(metric=metric)
    bare = table.join(of_metric, on=list(CHECKPOINT), how="anti").unique(CHECKPOINT)
    if len(bare):
        raise UsageError(
            f"{bare['file'].sort()[0]} has no number for {metric!r} ({len(bare):,} such "
            "checkpoints), and others have one. Leave it out."
        )
    measure = replace(PERFORMANCE, text=metric_name(task, metric))
    return frame_quantity(of_metric, measure, f"performance ({metric})")


def metric_name(task: str, metric: str) -> str:
    """A metric of a task in sentences.

    >>> metric_name("lambada_openai", "acc"), metric_name("lm-eval:arc_easy", "acc_norm")
    ('LAMBADA accuracy', 'lm-eval:arc_easy acc_norm')
    """
    short = task.removeprefix("lm-eval:").startswith("lambada")
    return f"{'LAMBADA' if short else task} {'accuracy' if metric == 'acc' else metric}"


@dataclass(frozen=True, slots=True)
class TradeOff(Result):
    """Results of `tradeoff_metric`. Every table begins with model and run.

    Changes of performance are in percentage points. `low` and `high` are 95 % intervals, NaN if a
    curve has no uncertainty.
    """

    measures: pl.DataFrame
    """Performance and gap (`delta`) at every common step, and of a bank JSD-P of each gendered
    answer, whose difference is the gap; as `summarise` returns them."""
    tradeoff: pl.DataFrame
    """Performance and gap side by side; `gap` is the size of `delta`."""
    pairs: pl.DataFrame
    """From checkpoint `before` to `after`: change of performance and of fairness, in percent of the
    gap before. The `choice` is a pair, or the `smallest gap` of the `searched` steps that lose at
    most `max_accuracy_loss` against the best one."""
    settings: Mapping[str, str | int | float]
    shown: tuple[Measure, ...] = FAMILY.measures
    """The measures as sentences name them."""

    @property
    def common(self) -> tuple[Family, Measured]:
        """What the common findings and chart are about."""
        changes = changes_of(self.measures.clear(), self.shown[0])
        return replace(FAMILY, measures=self.shown), Measured(self.measures, changes)


def tradeoff_metric(
    performance: pl.DataFrame,
    gap: pl.DataFrame,
    *,
    metric: str = "acc",
    gap_name: str = "gap",
    max_accuracy_loss: float = 2.0,
    pair: tuple[int, int] | None = None,
) -> TradeOff:
    r"""Set a performance curve against a gap, checkpoint by checkpoint.

    Models of the same name are one, or of names that differ only in their owner
    (`EleutherAI/pythia-160m`, `pythia-160m`).

    The choice is the fairest checkpoint within a loss of performance. Fairness increase from
    :math:`b` to :math:`a` is :math:`100(|\Delta_b|-|\Delta_a|)/|\Delta_b|`, NaN if the gap before
    is zero. Intervals are normal, from the standard errors, with checkpoints as independent.

    Parameters
    ----------
    performance, gap
        Columns model, step, value; optional run (else `main`), stderr, and the ends of a 95 %
        interval, low and high. The gap's values may have a sign. Releases (null step) are not used.
    metric, gap_name
        Names of the two, for messages and charts.
    max_accuracy_loss
        Largest loss of performance, in percentage points.
    pair
        Steps before and after.

    Raises
    ------
    UsageError
        Missing columns, a value or standard error that is invalid, no model, run or step in
        common, a step of the pair that no run has, or a loss that is negative or infinite.

    References
    ----------
    Early stopping for fairness, and the change of fairness: arXiv 2506.01709. Not in the paper: the
    largest loss, intervals.

    Examples
    --------
    >>> steps = {"model": "m", "step": [8, 16, 32]}
    >>> found = tradeoff_metric(
    ...     pl.DataFrame({**steps, "value": [0.30, 0.48, 0.50]}),
    ...     pl.DataFrame({**steps, "value": [0.10, 0.05, 0.73]}),
    ...     pair=(32, 16),
    ... )
    >>> changes = pl.col("fairness_change", "performance_change").round(1)
    >>> found.pairs.select("choice", "before", "after", changes).rows()
    [('pair', 32, 16, 93.2, -2.0), ('smallest gap', 32, 16, 93.2, -2.0)]
    """
    able = frame_quantity(performance, replace(PERFORMANCE, text=metric), f"performance ({metric})")
    fair = frame_quantity(gap, replace(DELTA, text=gap_name), gap_name)
    return trade_off(able, fair, gap_name=gap_name, max_accuracy_loss=max_accuracy_loss, pair=pair)


def trade_off(
    performance: Quantity,
    gap: Quantity,
    *,
    gap_name: str,
    max_accuracy_loss: float,
    pair: tuple[int, int] | None,
) -> TradeOff:
    """As `tradeoff_metric`, of quantities that may have items.

    Between two steps, intervals are then paired over the items of both.
    """
    metric = performance.measures[0].text
    if not 0 <= max_accuracy_loss < math.inf:
        raise UsageError(f"The largest loss {max_accuracy_loss:g} is invalid: use 0 or more.")
    for side, name in ((performance, f"performance ({metric})"), (gap, gap_name)):
        if side.points.is_empty():
            raise UsageError(f"The {name} has no training step. A trade-off needs several.")
    able = _named_alike(performance, gap)
    invalid = able.points.filter(~pl.col("value").is_between(0, 1))["value"]
    if len(invalid):
        raise UsageError(
            f"The performance ({metric}) is {invalid[0]:g}. A trade-off needs a share between 0 "
            "and 1, such as accuracy."
        )
    measures = common_rows(able, gap)
    if measures.is_empty():
        raise UsageError(_disjoint(able.points, gap.points))
    curves = curve_table(measures)
    shown = (*performance.measures, *gap.measures)
    return TradeOff(
        measures=measures,
        tradeoff=curves,
        pairs=pair_table(curves, able, gap, pair, max_accuracy_loss),
        settings={
            "metric": metric,
            "gap": gap_name,
            "max_accuracy_loss": max_accuracy_loss,
            "performance_alone": _alone(able.points, gap.points),
            "gap_alone": _alone(gap.points, able.points),
        },
        shown=tuple(replace(each, text=capital(each.text)) for each in shown),
    )


def frame_quantity(frame: pl.DataFrame, measure: Measure, name: str) -> Quantity:
    """The quantity of a frame; `run` is `main` if the frame has none.

    Raises
    ------
    UsageError
        Columns are missing, a row has no model, a value is not finite, a standard error is negative
        or infinite, or a checkpoint has several values.
    """
    if missing := [c for c in ("model", "step", "value") if c not in frame.columns]:
        raise UsageError(
            f"The {name} lacks {', '.join(missing)}; it has {', '.join(frame.columns)}. It needs "
            "model, step and value."
        )
    stderr = pl.col("stderr").cast(pl.Float64)
    half = pl.when(stderr > 0).then(Z95 * stderr)  # no width would claim certainty
    absent = {
        "run": pl.lit("main"), "stderr": pl.lit(float("nan")),
        "low": pl.col("value") - half, "high": pl.col("value") + half,
    }  # fmt: skip
    whole = frame
    for column, expression in absent.items():
        if column not in frame.columns:
            whole = whole.with_columns(expression.alias(column))
    whole = whole.select(pl.col(column).cast(dtype) for column, dtype in SCHEMA.items())
    steps = whole.drop_nulls("step").with_columns(
        pl.col("run").fill_null("main"), pl.col("stderr", "low", "high").fill_null(float("nan"))
    )
    error = pl.col("stderr")
    distinct = steps.unique([*CHECKPOINT, "value"], keep="first", maintain_order=True)
    for rows, problem in (
        (steps.filter(pl.col("model").is_null()), "no model"),
        (steps.filter(~pl.col("value").is_finite().fill_null(False)), "the value {value}"),
        (steps.filter((error < 0) | error.is_infinite()), "the standard error {stderr}"),
        (distinct.filter(pl.struct(CHECKPOINT).is_duplicated()), "the value {value} and others"),
    ):
        if len(rows):
            row = rows.sort(CHECKPOINT).row(0, named=True)
            raise UsageError(
                f"The {name} of {checkpoint_name(row)} has {problem.format(**row)} "
                f"({rows.select(CHECKPOINT).n_unique():,} such checkpoints). Correct it, or leave "
                "that checkpoint out."
            )
    table = distinct.sort(CHECKPOINT).with_columns(measure=pl.lit(measure.key))
    return Quantity(table, (measure,))


def capital(text: object) -> str:
    """A text that begins with a capital."""
    return f"{text}"[:1].upper() + f"{text}"[1:]


def _alone(one: pl.DataFrame, other: pl.DataFrame) -> int:
    """How many checkpoints of common models and runs only one curve has."""
    common = one.join(other, on=["model", "run"], how="semi")
    return len(common.join(other, on=list(CHECKPOINT), how="anti"))


def _named_alike(performance: Quantity, gap: Quantity) -> Quantity:
    """The performance of models of the gap, under their names there."""
    able, fair = (sorted(set(side.points["model"])) for side in (performance, gap))
    names = match_models(fair, able, sources=("the gap", "the performance"))
    if not names:
        raise UsageError(
            f"The performance has {listed_models(able)}, the gap has {listed_models(fair)}: none "
            f"in common. Fix: --performance {fair[0]}=FILE"
        )
    return performance.renamed(names)


def _disjoint(performance: pl.DataFrame, gap: pl.DataFrame) -> str:
    """Why no checkpoint is in both curves, about the first model that is."""
    model = sorted(set(performance["model"]) & set(gap["model"]))[0]
    texts = []
    for side in (performance, gap):
        rows = side.filter(model=model)
        steps, runs = rows["step"].sort(), rows["run"].unique().sort().to_list()
        named = ", ".join(runs[:MOST_NAMES]) + ", …" * (len(runs) > MOST_NAMES)
        texts.append(f"run {named}, steps {steps[0]} to {steps[-1]}")
    return (
        f"The performance and the gap of {model} have no run and step in common. Performance: "
        f"{texts[0]}. Gap: {texts[1]}. Extract or evaluate steps that the other has."
    )
