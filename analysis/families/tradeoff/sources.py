"""Where the two sides of a trade-off come from: scans of a bank, result files, tables of others."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.lambada.metric import examples_in_turn
from logitbank.analysis.families.tradeoff.curves import curve, stderr_of_interval
from logitbank.analysis.frames.batches import Scan, frames_of
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.pieces import CHECKPOINT, WholePrompts, together
from logitbank.analysis.frames.shared import Wanted, made_of, shared_frames
from logitbank.analysis.frames.sources import frame_of
from logitbank.analysis.frames.table_files import is_table_path, number, read_table, whole
from logitbank.analysis.harness import NEW_NAMES, read_harness
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, bootstrap_means, cluster_counts
from logitbank.analysis.stats.significance import mean_present
from logitbank.errors import UsageError
from logitbank.store import Bank

LAMBADA_METRICS = ("acc", "perplexity")


def lambada_curve(
    frame: Scan,
    *,
    metric: str = "acc",
    expected: pl.DataFrame | None = None,
    resamples: int = 1000,
    seed: int = 1,  # not that of fairness: as many sentences as examples would be drawn alike
) -> pl.DataFrame:
    """LAMBADA accuracy or perplexity at every checkpoint, with bootstrap draws over examples.

    One resample has the same examples at every checkpoint, so that differences between checkpoints
    are differences on the same examples.
    """
    if (metric := NEW_NAMES.get(metric, metric)) not in LAMBADA_METRICS:
        raise UsageError(
            f"unknown metric {metric!r}: LAMBADA of a bank has {' and '.join(LAMBADA_METRICS)}; "
            "others come from files (--performance)"
        )
    column = "correct" if metric == "acc" else "logprob"
    parts = made_of(frame, _name(column))
    if parts is None:
        alone = frames_of(frame)[:]  # of what is shared, the same would be made twice
        parts = examples_in_turn(alone, partial(_examples, column=column), expected=expected)
    names = pl.concat(part.names for part in parts).unique().sort()
    values = np.full((sum(len(part.checkpoints) for part in parts), 1, len(names)), np.nan)
    start = 0
    for part in parts:
        rows = np.arange(start, start := start + len(part.checkpoints))
        values[rows[:, None], 0, names.search_sorted(part.names).to_numpy()] = part.values
    checkpoints = pl.concat(part.checkpoints for part in parts)
    counts = cluster_counts(np.arange(len(names)), resamples=resamples, seed=seed)
    means, draws = mean_present(values[:, 0], axis=1), bootstrap_means(values, counts)
    if metric != "acc":
        means, draws = np.exp(-means), np.exp(-draws)
    examples = np.count_nonzero(~np.isnan(values[:, 0]), axis=1)
    draws = np.where(examples < FEWEST_CLUSTERS, np.nan, draws)
    return together([curve(checkpoints, means, draws=draws)])


def wanted_examples(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None
) -> list[Wanted]:
    """What a report's other studies of LAMBADA are to make for `lambada_curve` of its accuracy."""
    column = "correct"
    frames = shared_frames(prompts) or frame_of(banks, prompts, models)
    return [Wanted(_name(column), prompts, frames, lambda _: partial(_examples, column=column))]


def _name(column: str) -> str:
    return f"{column} of each example"


class _Examples(NamedTuple):
    checkpoints: pl.DataFrame
    names: pl.Series
    values: Floats
    """By checkpoint and name, NaN where there is none: 8 bytes each."""


def _examples(examples: WholePrompts, *, column: str) -> _Examples:
    rows = examples.rows
    checkpoints = rows.select(CHECKPOINT).unique().sort(CHECKPOINT, nulls_last=True)
    names = rows.select("prompt_id").unique().sort("prompt_id")
    values = np.full((len(checkpoints), len(names)), np.nan)
    place = _index(rows, checkpoints, CHECKPOINT), _index(rows, names, ("prompt_id",))
    values[place] = rows[column].cast(pl.Float64).to_numpy()
    return _Examples(checkpoints, names["prompt_id"], values)


def performance_files(
    paths: Sequence[Path],
    *,
    task: str = "lambada_openai",
    metric: str = "acc",
    where: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """The performance curve in result files of lm-evaluation-harness, in tables, or in both.

    Raises
    ------
    UsageError
        What `read_harness` and `table_curve` refuse; a metric that the files do not have.
    """
    wanted = NEW_NAMES.get(metric, metric)
    parts = [
        table_curve(path, metric, where=where, name="performance")
        for path in paths
        if is_table_path(path)
    ]
    files = [path for path in paths if not is_table_path(path)]
    if files:
        results = read_harness(files, task=task)
        of_metric = results.filter(pl.col("metric") == wanted)
        bare = results.unique(CHECKPOINT, keep="first", maintain_order=True).join(
            of_metric, on=list(CHECKPOINT), how="anti", maintain_order="left"
        )
        if of_metric.is_empty():
            names = ", ".join(results["metric"].unique().sort().to_list()) or "none"
            raise UsageError(
                f"unknown metric {metric!r}: {task} has {names} in {files[0]}"
                + (f" and {len(files) - 1:,} more files" if len(files) > 1 else "")
                + "; choose one with --metric"
            )
        if len(bare):
            raise UsageError(
                f"{bare['file'][0]} has no number for {metric!r} ({len(bare):,} such checkpoints), "
                "and others have one; leave it out"
            )
        parts.append(curve(of_metric, of_metric["value"], stderr=of_metric["stderr"]))
    return pl.concat(parts)


def table_curve(
    path: Path, column: str, *, where: Mapping[str, str] | None = None, name: str = "gap"
) -> pl.DataFrame:
    """One curve of a CSV or Parquet table.

    The table has model and step, and either metric and value, of which the rows of that metric are
    taken, or a column of that name. A standard error is in `stderr` or `<column>_stderr`, or
    follows from a 95 % interval, `low` and `high`; for `delta_scaled` also `low_scaled` and
    `high_scaled`. A column run is optional.

    Parameters
    ----------
    where
        Values that rows must have in other columns.

    Raises
    ------
    UsageError
        No such table or column, a number that is none, or no row left.
    """
    table = read_table(path)
    for key, value in (where or {}).items():
        if key not in table.columns:
            raise UsageError(
                f"--where: {path} has no column {key}; it has {_listed(table.columns)}"
            )
        kept = table.filter(pl.col(key).cast(pl.String) == value)
        if kept.is_empty():
            available = table[key].cast(pl.String).drop_nulls().unique().sort().to_list()
            raise UsageError(f"--where: {path} has no {key} {value!r}; it has {_listed(available)}")
        table = kept
    if missing := [key for key in ("model", "step") if key not in table.columns]:
        raise UsageError(
            f"{path} lacks {', '.join(missing)}; it has {_listed(table.columns)}, and a curve "
            "needs model, step and a value"
        )
    value, table = _value_column(table, column, path, name)
    try:
        values, steps = number(table[value]), whole(table["step"])
        errors = _errors(table, value)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    run = table["run"] if "run" in table.columns else pl.Series(["main"] * len(table))
    checkpoints = pl.DataFrame(
        {"model": table["model"].cast(pl.String), "run": run.cast(pl.String), "step": steps}
    )
    invalid = ~values.is_finite().fill_null(False)
    if invalid.any():
        row = checkpoints.filter(invalid).row(0, named=True)
        raise UsageError(
            f"{path}: the {value} of {row['model']} step {row['step']} is "
            f"{table[value].filter(invalid)[0]}, which is not finite ({invalid.sum():,} such "
            "rows); leave them out"
        )
    return curve(checkpoints, values, stderr=errors)


def _value_column(
    table: pl.DataFrame, column: str, path: Path, name: str
) -> tuple[str, pl.DataFrame]:
    """The column with the values, and the rows that count."""
    old = {new: old for old, new in NEW_NAMES.items()}
    names = [n for n in (column, NEW_NAMES.get(column), old.get(column)) if n]
    if {"metric", "value"} <= {*table.columns}:
        rows = table.filter(pl.col("metric").cast(pl.String).is_in(names))
        if len(rows):
            return "value", rows
        available = table["metric"].cast(pl.String).drop_nulls().unique().sort().to_list()
        raise UsageError(
            f"unknown metric {column!r}: {path} has {_listed(available)}; choose one with --metric"
        )
    for candidate in names:
        if candidate in table.columns and candidate not in CHECKPOINT:
            return candidate, table
    if name == "performance" and "value" in table.columns:
        return "value", table
    option = "--metric" if name == "performance" else "--gap"
    others = [c for c in table.columns if c not in CHECKPOINT]
    what = "metric" if name == "performance" else "gap"
    raise UsageError(
        f"unknown {what} {column!r}: {path} has the columns {_listed(others)}; choose one with "
        f"{option}"
    )


def _errors(table: pl.DataFrame, column: str) -> pl.Series | None:
    for name in (f"{column}_stderr", "stderr"):
        if name in table.columns:
            return number(table[name]).fill_null(float("nan"))
    stem, _, unit = column.rpartition("_")
    for low, high in ((f"low_{unit}", f"high_{unit}"), ("low", "high")):
        if {low, high} <= {*table.columns} and (low != "low" or column == "value" or not stem):
            width = stderr_of_interval(number(table[low]), number(table[high]))
            return width.fill_null(float("nan"))
    return None


def _index(rows: pl.DataFrame, of: pl.DataFrame, on: Sequence[str]) -> np.ndarray:
    """The place of each row in a frame of distinct ones."""
    numbered = of.with_row_index("at")
    index: np.ndarray = rows.join(
        numbered, on=list(on), how="left", nulls_equal=True, maintain_order="left"
    )["at"].to_numpy()
    return index


def _listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
