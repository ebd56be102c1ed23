"""Performance against fairness over training: what a fairer checkpoint costs.

Performance is LAMBADA of a bank, or comes from result files and tables; the gap is that of a
family, or comes from a table.
"""

import glob
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.families.lambada.metric import (
    ExampleHits,
    example_hits,
    examples_in_turn,
    hits_key,
)
from logitbank.analysis.families.tradeoff import FAMILY, TASK, gaps
from logitbank.analysis.families.tradeoff.tables import (
    Joined,
    changes_of,
    choice_table,
    curve_table,
    pair_table,
    scale_of,
)
from logitbank.analysis.frames.banks import Banks, OneBank, open_banks, split_files
from logitbank.analysis.frames.batches import prompt_frames
from logitbank.analysis.frames.expected import expected_pieces, partial_notes
from logitbank.analysis.frames.expressions import Floats, check_choice
from logitbank.analysis.frames.input_files import SUFFIXES, is_table_path
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, concat_sorted
from logitbank.analysis.frames.scan_cache import ScanCache
from logitbank.analysis.harness import NEW_NAMES, read_harness
from logitbank.analysis.results.curve import curve, read_curve
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS, bootstrap_means, cluster_counts
from logitbank.analysis.stats.significance import mean_present
from logitbank.analysis.study import Study, study_of
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from logitbank.wording import checkpoint_name, counted

LOSSES = (1.0, 2.0, 5.0)
"""Percentage points of accuracy that may be lost, by default."""
LOWER_IS_BETTER = frozenset(
    {
        *("ppl", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "loss"),
        *("ter", "likelihood_diff", "likelihood_difference"),
    }
)
LAMBADA_METRICS = ("acc", "perplexity")
METRIC_NAMES = {"acc": "accuracy", "ppl": "perplexity"}
LAMBADA_SEED = 1
"""Not that of the gap: as many sentences as examples would be drawn alike."""
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
COUNTED = 5
"""Names in a message."""


def analyze_tradeoff(
    banks: Banks,
    *,
    prompts: Sequence[str] | None,
    models: Sequence[str] | None,
    cache: ScanCache | None,
    performance: Sequence[str | Path],
    task: str,
    metric: str,
    gap: str | None,
    fairness_table: str | Path | None,
    where: Mapping[str, str] | None,
    rename: Mapping[str, str] | None,
    lower_is_better: bool,
    max_accuracy_loss: float | None,
    pair: tuple[int, int] | None,
    from_step: int | None,
    bootstrap: int,
) -> Study["TradeOff"]:
    """The study of banks and files; `logitbank.tradeoff` documents the parameters."""
    from logitbank.analysis.families.tradeoff.findings import interval_note

    named, more = split_files(banks, _is_performance)
    files = [*_files([Path(path) for path in performance]), *more]
    if prompts is not None and len(prompts) != 2:
        raise UsageError(
            f"--prompts needs two prompt sets, that of LAMBADA and that of the gap, and has "
            f"{len(prompts)}: {', '.join(prompts)}."
        )
    _check_sources(named, files, task=task, where=where, gap=gap, table=fairness_table)
    lambada_prompts, gap_prompts = prompts or ("lambada", None)
    read = [] if files else [lambada_prompts]
    if fairness_table is None:
        own = gaps()[gap or _gap_of(gap_prompts)]
        read.append(gap_prompts or own.prompts)
    opened, cache = open_banks(named, models=models, prompts=read), cache or ScanCache()
    from_lambada = not files or task.startswith("lambada")
    if files:
        able = performance_files(files, task=task, metric=metric, where=where)
    else:
        able = lambada_curve(
            opened, lambada_prompts, models, metric=metric, resamples=bootstrap, cache=cache
        )
    if models is not None:
        able = _of_models(able, [*models, *(rename or {})])
    parts, parts_name = None, ""
    if fairness_table is not None:
        table = Path(fairness_table)
        files.append(table)
        fair, gap_name = read_curve(table, gap or "value"), gap
        if gap in (None, "value"):
            gap_name = f"gap of {table.stem}"
    else:
        fair = own.curve(opened, read[-1], models, bootstrap, cache)
        gap_name = own.label
        if own.parts is not None:
            parts_name, of_bank = own.parts
            parts = of_bank(opened, read[-1], models, bootstrap, cache)
    result = tradeoff_metric(
        able, fair,
        metric=f"LAMBADA {METRIC_NAMES.get(metric, metric)}" if from_lambada
        else f"{task} {metric}",
        gap_name=str(gap_name),
        higher_is_better=False if lower_is_better else None,
        max_accuracy_loss=max_accuracy_loss, pair=pair, rename=rename, resamples=bootstrap,
        from_step=from_step, parts=parts, parts_name=parts_name,
    )  # fmt: skip
    study = study_of(
        FAMILY, result, prompts=read, banks=opened, models=models,
        missing=partial_notes(opened, read, models),
        files=[pl.DataFrame({"file": [path.name]}) for path in files],
    )  # fmt: skip
    return replace(study, notes=(interval_note(result), *study.notes))


def _check_sources(
    banks: Sequence[OneBank],
    files: Sequence[Path],
    *,
    task: str,
    where: Mapping[str, str] | None,
    gap: str | None,
    table: str | Path | None,
) -> None:
    """Refuse options that no source has, and a side without a source."""
    if where and not any(is_table_path(path) for path in files):
        raise UsageError("`where` chooses rows of a table of performance: add one.")
    if task != TASK and not files:
        raise UsageError(f"--task {task} is read from result files: add --performance.")
    if not files and not banks:
        raise UsageError("There is no performance: name a bank with LAMBADA, or --performance.")
    if table is None:
        check_choice("gap", gap or "fairness", tuple(gaps()))
        if not banks:
            raise UsageError(
                f"A gap of {gap or 'fairness'} comes from a bank: name one, or --fairness-table."
            )


def _gap_of(prompts: str | None) -> str:
    """The first gap that is measured on a prompt set, else fairness."""
    return next((name for name, gap in gaps().items() if gap.prompts == prompts), "fairness")


def _of_models(performance: pl.DataFrame, models: Sequence[str]) -> pl.DataFrame:
    bare = {_bare(name) for name in models}
    rows = performance.filter(pl.col("model").str.split("/").list.last().is_in(bare))
    if rows.is_empty():
        available = _names(performance["model"].unique().sort().to_list())
        raise UsageError(
            f"The performance has no model {models[0]!r}; it has {available}. Name one with "
            "--model, or with `rename` in Python."
        )
    return rows


def _is_performance(path: Path) -> bool:
    return path.suffix.lower() in (".json", *SUFFIXES) and not path.is_dir()


def _files(paths: Sequence[Path]) -> list[Path]:
    """Files named directly, in folders, or by a pattern."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            problem = f"The folder {path} has no .json file: name result files or their folder."
        elif any(sign in str(path) for sign in "*?[") and not path.exists():
            inside = [Path(name) for name in sorted(glob.glob(str(path)))]
            problem = f"No file matches {path}: check the pattern."
        else:
            inside, problem = [path], ""
        if not inside:
            raise UsageError(problem)
        files += inside
    return files


def lambada_curve(
    banks: Sequence[Bank],
    prompts: str,
    models: Sequence[str] | None = None,
    *,
    metric: str = "acc",
    resamples: int = 1000,
    cache: ScanCache | None = None,
) -> pl.DataFrame:
    """LAMBADA accuracy or perplexity at every checkpoint, with bootstrap draws over examples.

    One resample has the same examples at every checkpoint, so that differences between checkpoints
    are differences on the same examples.
    """
    if (metric := NEW_NAMES.get(metric, metric)) not in LAMBADA_METRICS:
        raise UsageError(
            f"Unknown metric {metric!r}: LAMBADA of a bank has {' and '.join(LAMBADA_METRICS)}. "
            "Others come from files (--performance)."
        )

    def hits(column: str) -> list[ExampleHits]:
        frame, expected = prompt_frames(banks, prompts, models), expected_pieces(banks, prompts)
        return examples_in_turn(frame, partial(example_hits, column=column), expected=expected)

    if metric == "acc":
        parts = (cache or ScanCache()).get(hits_key(prompts, models), lambda: hits("correct"))
    else:
        parts = hits("logprob")
    names = pl.concat(part.names for part in parts).unique().sort()
    values = np.full((sum(len(part.checkpoints) for part in parts), 1, len(names)), np.nan)
    start = 0
    for part in parts:
        rows = np.arange(start, start := start + len(part.checkpoints))
        values[rows[:, None], 0, names.search_sorted(part.names).to_numpy()] = part.values
    checkpoints = pl.concat(part.checkpoints for part in parts)
    counts = cluster_counts(np.arange(len(names)), resamples=resamples, seed=LAMBADA_SEED)
    means, draws = mean_present(values[:, 0], axis=1), bootstrap_means(values, counts)
    if metric != "acc":
        means, draws = np.exp(-means), np.exp(-draws)
    examples = np.count_nonzero(~np.isnan(values[:, 0]), axis=1)
    draws = np.where(examples < FEWEST_CLUSTERS, np.nan, draws)
    return concat_sorted([curve(checkpoints, means, draws=draws)])


def performance_files(
    paths: Sequence[Path],
    *,
    task: str = TASK,
    metric: str = "acc",
    where: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """The performance curve in result files of lm-evaluation-harness, in tables, or in both.

    Raises
    ------
    UsageError
        What `read_harness` and `read_curve` refuse; a metric that the files do not have.
    """
    tables = [path for path in paths if is_table_path(path)]
    parts = [read_curve(path, metric, where=where, name="performance") for path in tables]
    if files := [path for path in paths if path not in tables]:
        results = read_harness(files, task=task)
        of_metric = results.filter(pl.col("metric") == NEW_NAMES.get(metric, metric))
        bare = results.unique(CHECKPOINT, keep="first", maintain_order=True).join(
            of_metric, on=list(CHECKPOINT), how="anti", maintain_order="left"
        )
        if of_metric.is_empty():
            names = ", ".join(results["metric"].unique().sort().to_list()) or "none"
            others = f" and {len(files) - 1:,} more files" if len(files) > 1 else ""
            raise UsageError(
                f"Unknown metric {metric!r}: {task} has {names} in {files[0]}{others}. Choose one "
                "with --metric."
            )
        if len(bare):
            raise UsageError(
                f"{bare['file'][0]} has no number for {metric!r} ({len(bare):,} such checkpoints), "
                "and others have one. Leave it out."
            )
        parts.append(curve(of_metric, of_metric["value"], stderr=of_metric["stderr"]))
    return pl.concat(parts)


@dataclass(frozen=True, slots=True)
class TradeOff(Result):
    """What `tradeoff_metric` found. Every table begins with model and run.

    The gap is the absolute value of `delta`. Changes of performance are in `unit` of the settings:
    `points`, hundredths of a share, or the metric's own unit; positive is better. `low` and `high`
    are 95 % intervals, NaN if a curve has no uncertainty.
    """

    tradeoff: pl.DataFrame
    """Both curves at every common step; whether it is on the Pareto front (greatest performance,
    smallest gap), and in what share of the resamples."""
    choices: pl.DataFrame
    """For each `max_accuracy_loss`: the step of smallest gap among those that lose at most so much
    against the best one, and the share of resamples in which it is that step."""
    pairs: pl.DataFrame
    """From checkpoint `before` to `after`: change of performance and of fairness, in percent of the
    gap before."""
    change_points: pl.DataFrame
    """Change points of each curve, `performance` and `delta`."""
    parts: pl.DataFrame
    """The measures whose difference is the gap, such as JSD-P for each answer; may be empty."""
    settings: Mapping[str, str | int | float | bool | None]


def tradeoff_metric(
    performance: pl.DataFrame,
    gap: pl.DataFrame,
    *,
    metric: str = "acc",
    gap_name: str = "gap",
    higher_is_better: bool | None = None,
    max_accuracy_loss: float | None = None,
    pair: tuple[int, int] | None = None,
    rename: Mapping[str, str] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    from_step: int | None = None,
    parts: pl.DataFrame | None = None,
    parts_name: str = "",
) -> TradeOff:
    r"""Set a performance curve against a gap, checkpoint by checkpoint.

    The Pareto front consists of the checkpoints that no other beats in one of the two without being
    worse in the other. Fairness increase from :math:`b` to :math:`a` is
    :math:`100(|\Delta_b|-|\Delta_a|)/|\Delta_b|`, NaN if the gap before is zero. Intervals come
    from draws: those of the curves, or normal ones from standard errors, drawn independently for
    every checkpoint.

    Parameters
    ----------
    performance, gap
        Columns model, step, value; optional run (else `main`), stderr, and draws (list of resampled
        values, one resample at the same place in every row). The gap's values may have a sign.
        Releases (null step) are not used.
    metric, gap_name
        Names of the two, for messages and charts.
    higher_is_better
        By default false for perplexities and losses, by the metric's name, else true.
    max_accuracy_loss
        Largest loss of performance, in `unit`; by default 1, 2 and 5 points for a share, and
        nothing for other metrics.
    pair
        Steps before and after.
    rename
        Models of the performance to their names in the gap.
    resamples
        Draws for a curve that has only standard errors; 0 gives no intervals at all.
    from_step
        First step of the search for change points; by default the first one after the untrained
        phase, whose value differs from that of step 0 by more than its own noise.
    parts, parts_name
        The measures whose difference is the gap (model, run, step, group, value, low, high), and
        what they are called.

    Raises
    ------
    UsageError
        Missing columns, an invalid standard error, no model, run or step in common, a step of the
        pair that no run has, or a loss that is negative or infinite.
    BankError
        A value that is not finite.

    References
    ----------
    Early stopping for fairness: arXiv 2506.01709. Its change of fairness is that of
    `fairness_change`. Not in the paper: the front, the largest loss, intervals, change points.

    Examples
    --------
    >>> steps = {"model": "m", "step": [8, 16, 32]}
    >>> found = tradeoff_metric(
    ...     pl.DataFrame({**steps, "value": [0.30, 0.48, 0.50]}),
    ...     pl.DataFrame({**steps, "value": [0.10, 0.05, 0.73]}),
    ...     pair=(32, 16),
    ... )
    >>> found.tradeoff.filter("on_front")["step"].to_list()
    [16, 32]
    >>> found.pairs.select(pl.col("fairness_change", "performance_change").round(1)).row(0)
    (93.2, -2.0)
    """
    loss = max_accuracy_loss
    if loss is not None and not 0 <= loss < math.inf:
        raise UsageError(f"The largest loss {loss:g} is invalid: use 0 or more.")
    if resamples < 0:
        raise UsageError(f"resamples {resamples} is negative: use 0 or more.")
    able = checked_curve(performance, f"performance ({metric})")
    fair = checked_curve(gap, gap_name)
    able = _renamed(able, fair, rename or {})
    better = _base(metric) not in LOWER_IS_BETTER if higher_is_better is None else higher_is_better
    curves = joined(able, fair, resamples=resamples, seed=seed)
    scale = scale_of(curves, higher_is_better=better)
    losses: Sequence[float] = LOSSES if scale.unit == "points" else ()
    kinds = [interval_kind(side) if resamples else None for side in (able, fair)]
    return TradeOff(
        tradeoff=curve_table(curves, scale),
        choices=choice_table(curves, scale, losses if loss is None else (loss,)),
        pairs=pair_table(curves, scale, pair),
        change_points=changes_of(curves, from_step=from_step, seed=seed),
        parts=pl.DataFrame(schema=PARTS) if parts is None else parts.select(*PARTS),
        settings={
            "metric": metric,
            "gap": gap_name,
            "parts": parts_name,
            "higher_is_better": better,
            "unit": scale.unit,
            "max_accuracy_loss": loss,
            "resamples": resamples,
            "performance_interval": kinds[0],
            "gap_interval": kinds[1],
            "performance_alone": _alone(able, fair),
            "gap_alone": _alone(fair, able),
        },
    )


def _base(metric: str) -> str:
    return metric.partition(",")[0].rsplit(" ", maxsplit=1)[-1]


def checked_curve(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """A curve with all its columns, sorted; `run` is `main` if the frame has none.

    Raises
    ------
    UsageError
        Columns are missing, a row has no model, a standard error is negative or infinite, or a
        checkpoint has several values.
    BankError
        A value is not finite.
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
    if nameless := steps["model"].null_count():
        raise UsageError(f"The {name} has rows without a model ({nameless:,} such rows). Name it.")
    invalid = steps.filter(~pl.col("value").is_finite().fill_null(False))
    if len(invalid):
        raise BankError(
            f"The {name} of {checkpoint_name(invalid.row(0, named=True))} is "
            f"{invalid['value'][0]}, which is not finite ({len(invalid):,} such rows). Leave that "
            "checkpoint out."
        )
    error = pl.col("stderr").fill_null(float("nan"))
    vague = steps.filter((error < 0) | error.is_infinite())
    if len(vague):
        raise UsageError(
            f"The {name} of {checkpoint_name(vague.row(0, named=True))} has the standard error "
            f"{vague['stderr'][0]:g}, which is invalid ({len(vague):,} such rows). Correct it, or "
            "its interval."
        )
    if steps.is_empty():
        raise UsageError(f"The {name} has no training step. A trade-off needs several.")
    distinct = steps.unique([*CHECKPOINT, "value"], keep="first", maintain_order=True)
    twice = distinct.filter(pl.struct(CHECKPOINT).is_duplicated()).sort(CHECKPOINT)
    if len(twice):
        raise UsageError(
            f"The {name} of {checkpoint_name(twice.row(0, named=True))} is "
            f"{twice['value'][0]:g} and {twice['value'][1]:g} "
            f"({twice.select(CHECKPOINT).n_unique():,} such checkpoints). Choose rows with "
            "`where` in Python, or leave a source out."
        )
    return distinct.sort(CHECKPOINT)


def joined(
    performance: pl.DataFrame,
    gap: pl.DataFrame,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Joined]:
    """Both curves on the models, runs and steps that both have.

    Raises
    ------
    UsageError
        No run or no step in common; both ranges are named.
    """
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


def _alone(one: pl.DataFrame, other: pl.DataFrame) -> int:
    """How many checkpoints of common models and runs only one curve has."""
    common = one.join(other, on=["model", "run"], how="semi")
    return len(common.join(other, on=list(CHECKPOINT), how="anti"))


def interval_kind(side: pl.DataFrame) -> str | None:
    """How the intervals of a curve are computed; None without any."""
    if side["draws"].null_count() < len(side):
        return RESAMPLED
    return NORMAL if side["stderr"].is_not_nan().fill_null(False).any() else None


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
    """The performance under the models' names in the gap.

    Models of the same name are one, and if there are none, those whose names are the same without
    their owner (`EleutherAI/pythia-160m`, `pythia-160m`).
    """
    available, wanted = (sorted(set(side["model"])) for side in (performance, gap))
    if unknown := [name for name in rename if name not in available]:
        raise UsageError(
            f"`rename`: the performance has no model {unknown[0]!r}; it has {_names(available)}."
        )
    if unknown := [name for name in rename.values() if name not in wanted]:
        raise UsageError(f"`rename`: the gap has no model {unknown[0]!r}; it has {_names(wanted)}.")
    names = {name: rename.get(name, name) for name in available}
    if not set(names.values()) & set(wanted):
        bare = {_bare(name): name for name in wanted}
        plain = [_bare(name) for name in available]
        if len(bare) == len(wanted) and len(set(plain)) == len(plain):
            names = {name: bare.get(_bare(name), name) for name in available}
    if not set(names.values()) & set(wanted):
        raise UsageError(
            f"The performance is of {_names(available)} and the gap of {_names(wanted)}: no model "
            f"in common. If two names mean one model, pass rename={{{available[0]!r}: "
            f"{wanted[0]!r}}} in Python."
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
            f"The performance of {model} is of run {_names(runs[0])} and its gap of run "
            f"{_names(runs[1])}: none in common. A column run of a table names the run."
        )
    steps = [side.filter(pl.col("run") == common[0])["step"].sort() for side in sides]
    spans = [
        f"{counted(len(own), 'step')} from {own[0]} to {own[-1]}"
        if len(own) > 1
        else f"step {own[0]}"
        for own in steps
    ]
    return (
        f"The performance of {model} {common[0]} has {spans[0]} and its gap {spans[1]}: no step "
        "in common. Extract or evaluate steps that the other has."
    )
