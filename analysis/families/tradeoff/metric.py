"""Performance against fairness over training: what a fairer checkpoint costs.

Performance is LAMBADA of a bank, or comes from result files; the gap is that of fairness.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.families.lambada.metric import read_lambada
from logitbank.analysis.families.tradeoff.tables import (
    Joined,
    choice_table,
    curve_table,
    pair_table,
)
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.match import listed_models, match_models
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.harness import NEW_NAMES, read_harness
from logitbank.analysis.results.curve import curve
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, bootstrap_means, cluster_counts
from logitbank.analysis.stats.significance import mean_present
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name

SEED, LAMBADA_SEED = 0, 1
"""They differ, since as many sentences as examples would be drawn alike."""
RESAMPLED = "items resampled, the same ones at every checkpoint"
NORMAL = "normal, from the standard errors given, checkpoints taken as independent"
SCHEMA: dict[str, pl.DataType] = {
    "model": pl.String(),
    "run": pl.String(),
    "step": pl.Int64(),
    "value": pl.Float64(),
    "stderr": pl.Float64(),
    "draws": pl.List(pl.Float64),
}
PARTS = {
    **dict.fromkeys(("model", "run"), pl.String),
    "step": pl.Int64,
    "group": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
}
MOST_NAMES = 5
"""Names in a message."""


def result_files(paths: Sequence[str | Path]) -> list[Path]:
    """Files that are named, and the result files in folders that are named."""
    files: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(
                f"The folder {path} has no .json file: name result files or their folder."
            )
        files += inside
    return files


def lambada_curve(source: Scores, *, resamples: int = 1000) -> pl.DataFrame:
    """LAMBADA accuracy at every checkpoint, with bootstrap draws over examples.

    One resample has the same examples at every checkpoint, so that differences between checkpoints
    are differences on the same examples.
    """
    examples = read_lambada(source).items.only(part="acc")
    examples = examples.at(examples.scored.arg_true().to_numpy().astype(np.int64))
    values = examples.values[:, None, :]
    counts = cluster_counts(np.arange(values.shape[2]), resamples=resamples, seed=LAMBADA_SEED)
    means, draws = mean_present(examples.values, axis=1), bootstrap_means(values, counts)
    number = np.count_nonzero(~np.isnan(examples.values), axis=1)
    draws = np.where(number < FEWEST_CLUSTERS, np.nan, draws)
    return curve(examples.checkpoints, means, draws=draws)


def performance_files(paths: Sequence[Path], task: str, metric: str) -> pl.DataFrame:
    """The performance curve of models in result files of lm-evaluation-harness.

    Raises
    ------
    UsageError
        What `read_harness` refuses; a metric that the files do not have.
    """
    results = read_harness(paths, task=task)
    of_metric = results.filter(pl.col("metric") == NEW_NAMES.get(metric, metric))
    bare = results.unique(CHECKPOINT, keep="first", maintain_order=True).join(
        of_metric, on=list(CHECKPOINT), how="anti", maintain_order="left"
    )
    if of_metric.is_empty():
        names = ", ".join(results["metric"].unique().sort().to_list()) or "none"
        others = f" and {len(paths) - 1:,} more files" if len(paths) > 1 else ""
        raise UsageError(
            f"Unknown metric {metric!r}: {task} has {names} in {paths[0]}{others}. Choose one "
            "with --metric."
        )
    if len(bare):
        raise UsageError(
            f"{bare['file'][0]} has no number for {metric!r} ({len(bare):,} such checkpoints), "
            "and others have one. Leave it out."
        )
    return curve(of_metric, of_metric["value"], stderr=of_metric["stderr"])


@dataclass(frozen=True, slots=True)
class TradeOff(Result):
    """What `tradeoff_metric` found. Every table begins with model and run.

    The gap is the absolute value of `delta`. Changes of performance are in percentage points. `low`
    and `high` are 95 % intervals, NaN if a curve has no uncertainty.
    """

    tradeoff: pl.DataFrame
    """Both curves at every common step."""
    choices: pl.DataFrame
    """The step of smallest gap among those that lose at most `max_accuracy_loss` against the best
    one, and the share of resamples in which it is that step."""
    pairs: pl.DataFrame
    """From checkpoint `before` to `after`: change of performance and of fairness, in percent of the
    gap before."""
    parts: pl.DataFrame
    """JSD-P of each gendered answer, whose difference is the gap; empty without a bank."""
    settings: Mapping[str, str | int | float | bool | None]


def tradeoff_metric(
    performance: pl.DataFrame,
    gap: pl.DataFrame,
    *,
    metric: str = "acc",
    gap_name: str = "gap",
    max_accuracy_loss: float = 2.0,
    pair: tuple[int, int] | None = None,
    match: Mapping[str, str] | None = None,
    resamples: int = 1000,
) -> TradeOff:
    r"""Set a performance curve against a gap, checkpoint by checkpoint.

    The choice is the fairest checkpoint within a loss of performance. Fairness increase from
    :math:`b` to :math:`a` is :math:`100(|\Delta_b|-|\Delta_a|)/|\Delta_b|`, NaN if the gap before
    is zero. Intervals come from draws: those of the curves, or normal ones from standard errors,
    drawn independently for every checkpoint.

    Parameters
    ----------
    performance, gap
        Columns model, step, value; optional run (else `main`), stderr, and draws (list of resampled
        values, one resample at the same place in every row). The gap's values may have a sign.
        Releases (null step) are not used.
    metric, gap_name
        Names of the two, for messages and charts.
    max_accuracy_loss
        Largest loss of performance, in percentage points.
    pair
        Steps before and after.
    match
        Models of the gap to models of the performance. By default, models of the same name are
        one, or of names that differ only in their owner (`EleutherAI/pythia-160m`, `pythia-160m`).
    resamples
        Draws for a curve that has only standard errors; 0 gives no intervals at all.

    Raises
    ------
    UsageError
        Missing columns, a value or standard error that is invalid, no model, run or step in
        common, an unknown model in `match`, a step of the pair that no run has, or a loss that is
        negative or infinite.

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
    >>> found.choices.select("best_step", "step", "gap").row(0)
    (32, 16, 0.05)
    >>> found.pairs.select(pl.col("fairness_change", "performance_change").round(1)).row(0)
    (93.2, -2.0)
    """
    loss = max_accuracy_loss
    if not 0 <= loss < math.inf:
        raise UsageError(f"The largest loss {loss:g} is invalid: use 0 or more.")
    if resamples < 0:
        raise UsageError(f"resamples {resamples} is negative: use 0 or more.")
    fair = checked_curve(gap, gap_name)
    able = _named_alike(checked_curve(performance, f"performance ({metric})"), fair, match)
    invalid = able["value"].filter(~able["value"].is_between(0, 1))
    if len(invalid):
        raise UsageError(
            f"The performance ({metric}) is {invalid[0]:g}. A trade-off needs a share between 0 "
            "and 1, such as accuracy."
        )
    curves = joined(able, fair, resamples=resamples)
    kinds = [interval_kind(side) if resamples else None for side in (able, fair)]
    return TradeOff(
        tradeoff=curve_table(curves),
        choices=choice_table(curves, loss),
        pairs=pair_table(curves, pair),
        parts=pl.DataFrame(schema=PARTS),
        settings={
            "metric": metric,
            "gap": gap_name,
            "max_accuracy_loss": loss,
            "resamples": resamples,
            "performance_interval": kinds[0],
            "gap_interval": kinds[1],
            "performance_alone": _alone(able, fair),
            "gap_alone": _alone(fair, able),
        },
    )


def checked_curve(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """A curve with all its columns, sorted; `run` is `main` if the frame has none.

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
    absent = {"run": pl.lit("main"), "stderr": pl.lit(float("nan")), "draws": pl.lit(None)}
    whole = frame.with_columns(
        expression.alias(column)
        for column, expression in absent.items()
        if column not in frame.columns
    ).select(pl.col(column).cast(dtype) for column, dtype in SCHEMA.items())
    steps = whole.filter(pl.col("step").is_not_null()).with_columns(pl.col("run").fill_null("main"))
    if steps.is_empty():
        raise UsageError(f"The {name} has no training step. A trade-off needs several.")
    error = pl.col("stderr").fill_null(float("nan"))
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
    return distinct.sort(CHECKPOINT)


def joined(performance: pl.DataFrame, gap: pl.DataFrame, *, resamples: int) -> list[Joined]:
    """Both curves on the models, runs and steps that both have.

    Raises
    ------
    UsageError
        No run or no step in common; both ranges are named.
    """
    shared = performance.join(gap, on=["model", "run", "step"], suffix="_gap").sort(CHECKPOINT)
    if shared.is_empty():
        raise UsageError(_disjoint(performance, gap))
    rng = np.random.default_rng(SEED)
    curves = []
    for (model, run), rows in shared.group_by("model", "run", maintain_order=True):
        able, fair = (_draws(rows, end, resamples, rng) for end in ("", "_gap"))
        b = min(len(able), len(fair))
        values = rows["value"].to_numpy(), rows["value_gap"].to_numpy()
        curves.append(Joined(str(model), str(run), rows["step"].to_list(), *values,
                             able[:b], fair[:b]))  # fmt: skip
    return curves


def _alone(one: pl.DataFrame, other: pl.DataFrame) -> int:
    """How many checkpoints of common models and runs only one curve has."""
    common = one.join(other, on=["model", "run"], how="semi")
    return len(common.join(other, on=list(CHECKPOINT), how="anti"))


def interval_kind(side: pl.DataFrame) -> str | None:
    """How the intervals of a curve are computed; None without any."""
    if side["draws"].null_count() < len(side):
        return RESAMPLED
    return NORMAL if side["stderr"].is_not_nan().fill_null(False).any() else None


def _draws(rows: pl.DataFrame, end: str, resamples: int, rng: np.random.Generator) -> Floats:
    """(b, c): the draws of a curve, else normal ones around its values."""
    draws = rows[f"draws{end}"]
    if resamples and draws.null_count() == 0:
        resampled: Floats = np.array(draws.to_list(), np.float64).T
        return resampled
    errors = rows[f"stderr{end}"].fill_null(float("nan")).to_numpy()
    normal: Floats = rows[f"value{end}"].to_numpy() + errors * rng.normal(
        size=(resamples, len(rows))
    )
    return normal


def _named_alike(
    performance: pl.DataFrame, gap: pl.DataFrame, match: Mapping[str, str] | None
) -> pl.DataFrame:
    """The performance of models of the gap, under their names there."""
    able, fair = (sorted(set(side["model"])) for side in (performance, gap))
    names = match_models(fair, able, match, sources=("the gap", "the performance"))
    if not names:
        raise UsageError(
            f"The performance has {listed_models(able)}, the gap has {listed_models(fair)}: none "
            f"in common. Fix: --match {fair[0]}={able[0]}"
        )
    common = performance.filter(pl.col("model").is_in([*names]))
    return common.with_columns(pl.col("model").replace(names))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _disjoint(performance: pl.DataFrame, gap: pl.DataFrame) -> str:
    """Why no checkpoint is in both curves, about the first model that is."""
    model = sorted(set(performance["model"]) & set(gap["model"]))[0]
    texts = []
    for side in (performance, gap):
        rows = side.filter(model=model)
        steps = rows["step"].sort()
        runs = _listed(rows["run"].unique().sort().to_list())
        texts.append(f"run {runs}, steps {steps[0]} to {steps[-1]}")
    return (
        f"The performance and the gap of {model} have no run and step in common. Performance: "
        f"{texts[0]}. Gap: {texts[1]}. Extract or evaluate steps that the other has."
    )
