"""The two sides of a trade-off: one number a checkpoint, with draws that carry its uncertainty."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.results.curve import curve as curve
from logitbank.analysis.stats.shares import Z95
from logitbank.errors import BankError, UsageError

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
COUNTED = 5
"""Names in a message."""


class Joined(NamedTuple):
    """Both sides of one model and run at the steps that both have, in order of step."""

    model: str
    run: str
    steps: list[int]
    performance: Floats
    """(c,)"""
    delta: Floats
    """(c,) the gap with its sign, where it has one."""
    performance_draws: Floats
    """(b, c); NaN where there is no standard error, no rows where no draws were asked for."""
    delta_draws: Floats
    """(b, c) likewise."""


def checked_curve(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """A side with all its columns and sorted; `run` is `main` where the frame has none.

    Raises
    ------
    UsageError
        Columns are lacking, a row has no model, a standard error is negative or infinite, or a
        checkpoint has several values.
    BankError
        A value is not finite.
    """
    if missing := [c for c in ("model", "step", "value") if c not in frame.columns]:
        raise UsageError(
            f"the {name} lacks {', '.join(missing)}; it has {', '.join(frame.columns)}, and needs "
            "model, step and value"
        )
    absent = {"run": pl.lit("main"), "stderr": pl.lit(float("nan")), "draws": pl.lit(None)}
    whole = frame.with_columns(
        expression.alias(column)
        for column, expression in absent.items()
        if column not in frame.columns
    ).select(pl.col(column).cast(dtype) for column, dtype in SCHEMA.items())
    steps = whole.filter(pl.col("step").is_not_null()).with_columns(pl.col("run").fill_null("main"))
    if nameless := steps["model"].null_count():
        raise UsageError(f"the {name} has rows without a model ({nameless:,} such rows); name it")
    invalid = steps.filter(~pl.col("value").is_finite().fill_null(False))
    if len(invalid):
        row = invalid.row(0, named=True)
        raise BankError(
            f"the {name} of {row['model']} {row['run']} step {row['step']} is {row['value']}, "
            f"which is not finite ({len(invalid):,} such rows); leave that checkpoint out"
        )
    error = pl.col("stderr").fill_null(float("nan"))
    vague = steps.filter((error < 0) | error.is_infinite())
    if len(vague):
        row = vague.row(0, named=True)
        raise UsageError(
            f"the {name} of {row['model']} {row['run']} step {row['step']} has the standard error "
            f"{row['stderr']:g}, which is none ({len(vague):,} such rows); correct it, or its "
            "interval"
        )
    if steps.is_empty():
        raise UsageError(f"the {name} has no training step; a trade-off is over several")
    distinct = steps.unique([*CHECKPOINT, "value"], keep="first", maintain_order=True)
    twice = distinct.filter(pl.struct(CHECKPOINT).is_duplicated()).sort(CHECKPOINT)
    if len(twice):
        row = twice.row(0, named=True)
        raise UsageError(
            f"the {name} of {row['model']} {row['run']} step {row['step']} is "
            f"{twice['value'][0]:g} and {twice['value'][1]:g} "
            f"({twice.select(CHECKPOINT).n_unique():,} such checkpoints); choose rows with "
            "--where COLUMN=VALUE, or leave a source out"
        )
    return distinct.sort(CHECKPOINT)


def joined(
    performance: pl.DataFrame,
    gap: pl.DataFrame,
    *,
    rename: Mapping[str, str] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Joined]:
    """Both sides on the models, runs and steps that both have.

    Models of the same name are one, and if there are none, those whose names are the same without
    their owner (`EleutherAI/pythia-160m`, `pythia-160m`). `rename` gives models of the
    performance the name that they have in the gap.

    Raises
    ------
    UsageError
        No model, no run or no step in common; both ranges are named.
    """
    performance = _renamed(performance, gap, rename or {})
    shared = performance.join(gap, on=["model", "run", "step"], suffix="_gap").sort(CHECKPOINT)
    if shared.is_empty():
        raise UsageError(_apart(performance, gap))
    rng = np.random.default_rng(seed)
    curves = []
    for (model, run), rows in shared.group_by("model", "run", maintain_order=True):
        sides = [
            _draws(rows["value" + end], rows["stderr" + end], rows["draws" + end], resamples, rng)
            for end in ("", "_gap")
        ]
        b = min(len(side) for side in sides)
        curves.append(
            Joined(
                str(model),
                str(run),
                rows["step"].to_list(),
                rows["value"].to_numpy(),
                rows["value_gap"].to_numpy(),
                sides[0][:b],
                sides[1][:b],
            )
        )
    return curves


def alone(
    performance: pl.DataFrame, gap: pl.DataFrame, *, rename: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """How many checkpoints have performance and no gap, and a gap and no performance.

    Of the models and runs that both sides have.
    """
    sides = _renamed(performance, gap, rename or {}), gap
    counts = []
    for side, other in (sides, reversed(sides)):
        of_both = side.join(other, on=["model", "run"], how="semi")
        counts.append(len(of_both.join(other, on=["model", "run", "step"], how="anti")))
    return counts[0], counts[1]


def interval_kind(side: pl.DataFrame) -> str | None:
    """How the intervals of a side come about; None where it has none."""
    if side["draws"].null_count() < len(side):
        return RESAMPLED
    return NORMAL if side["stderr"].is_not_nan().fill_null(False).any() else None


def stderr_of_interval(low: pl.Series, high: pl.Series) -> pl.Series:
    """The standard error for which a 95 % interval would be this wide."""
    return (high - low) / (2 * Z95)


def _draws(
    values: pl.Series,
    stderr: pl.Series,
    draws: pl.Series,
    resamples: int,
    rng: np.random.Generator,
) -> Floats:
    """(b, c): those given, else normal ones around the values."""
    if resamples and draws.null_count() == 0:
        given: Floats = np.array(draws.to_list(), np.float64).T
        return given
    errors = stderr.fill_null(float("nan")).to_numpy()
    normal: Floats = values.to_numpy() + errors * rng.normal(size=(resamples, len(values)))
    return normal


def _renamed(
    performance: pl.DataFrame, gap: pl.DataFrame, rename: Mapping[str, str]
) -> pl.DataFrame:
    """The performance under the models' names in the gap."""
    available, wanted = (sorted(set(side["model"])) for side in (performance, gap))
    if unknown := [name for name in rename if name not in available]:
        raise UsageError(
            f"--rename: the performance has no model {unknown[0]!r}; it has {_names(available)}"
        )
    if unknown := [name for name in rename.values() if name not in wanted]:
        raise UsageError(f"--rename: the gap has no model {unknown[0]!r}; it has {_names(wanted)}")
    names = {name: rename.get(name, name) for name in available}
    if not set(names.values()) & set(wanted):
        bare = {_bare(name): name for name in wanted}
        plain = [_bare(name) for name in available]
        if len(bare) == len(wanted) and len(set(plain)) == len(plain):
            names = {name: bare.get(_bare(name), name) for name in available}
    if not set(names.values()) & set(wanted):
        raise UsageError(
            f"the performance is of {_names(available)} and the gap of {_names(wanted)}: no model "
            f"in common; if two names mean one model, add --rename {available[0]}={wanted[0]}"
        )
    return performance.with_columns(model=pl.col("model").replace(names))


def _bare(name: str) -> str:
    return name.rsplit("/", maxsplit=1)[-1]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - COUNTED:,} more" if len(names) > COUNTED else ""
    return ", ".join(names[:COUNTED]) + more


def _apart(performance: pl.DataFrame, gap: pl.DataFrame) -> str:
    """Why no checkpoint is in both sides, about the first model that is."""
    model = sorted(set(performance["model"]) & set(gap["model"]))[0]
    sides = [side.filter(pl.col("model") == model) for side in (performance, gap)]
    runs = [sorted(set(side["run"])) for side in sides]
    common = sorted(set(runs[0]) & set(runs[1]))
    if not common:
        return (
            f"the performance of {model} is of run {_names(runs[0])} and its gap of run "
            f"{_names(runs[1])}: none in common; a table with a column run says which is meant"
        )
    spans = [_span(side.filter(pl.col("run") == common[0])["step"]) for side in sides]
    return (
        f"the performance of {model} {common[0]} has {spans[0]} and its gap {spans[1]}: no step "
        "in common; extract or evaluate steps that the other has"
    )


def _span(steps: pl.Series) -> str:
    known = sorted(steps.to_list())
    if len(known) == 1:
        return f"step {known[0]}"
    return f"{len(known):,} steps from {known[0]} to {known[-1]}"
