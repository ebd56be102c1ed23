"""From banks, result files and tables to a trade-off: one call for the command."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.tradeoff.metric import TradeOff, tradeoff_metric
from logitbank.analysis.families.tradeoff.sources import (
    lambada_curve,
    performance_files,
    table_curve,
    wanted_examples,
)
from logitbank.analysis.families.tradeoff.summary import tradeoff_summary
from logitbank.analysis.family import Columns, Gap, families
from logitbank.analysis.frames.apart import Banks, banks_and_files, open_banks
from logitbank.analysis.frames.expected import expected_pieces, partly_scored_sentences
from logitbank.analysis.frames.expressions import check_choice
from logitbank.analysis.frames.shared import Wanted, shared_frames
from logitbank.analysis.frames.sources import frame_of
from logitbank.analysis.frames.table_files import SUFFIXES, is_table_path
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank

TASK = "lambada_openai"
METRIC_NAMES = {"acc": "accuracy", "ppl": "perplexity"}


def tradeoff(
    banks: Banks = (),
    *,
    performance: Sequence[Path] = (),
    task: str = TASK,
    metric: str = "acc",
    gap: str | None = None,
    fairness_table: str | Path | None = None,
    where: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | None = None,
    lower_is_better: bool = False,
    give_up: float | None = None,
    pair: tuple[int, int] | None = None,
    prompts: str = "winobias",
    lambada: str = "lambada",
    models: Sequence[str] | None = None,
    bootstrap: int = 1000,
    from_step: int | None = None,
    out: str | Path | None = None,
    paper: Paper = PAPER,
) -> Study[TradeOff]:
    """Set performance against fairness over checkpoints.

    Parameters
    ----------
    banks
        A bank or several: folders, URLs, or what is open. Result files (.json) and tables (.csv,
        .parquet) among them are taken as further `performance`, so that a shell may expand
        `--performance results/*.json`.
    performance
        Result files of lm-evaluation-harness, tables, folders of result files, or patterns such as
        `results/*.json`. Without any, LAMBADA of the banks.
    task, metric
        What to read from result files; in a table the metric or column. Of a bank `acc` or
        `perplexity`.
    gap
        `fairness`, `stereotype`, `sa_gender` or `crows-pairs` of the banks; with `fairness_table`
        its column, `value` by default.
    fairness_table
        CSV or Parquet table with model, step and the gap, in place of one from a bank.
    where
        Values that rows of tables of performance must have in other columns.
    prompts, lambada
        Prompt sets of the banks for the fairness gap and for performance.
    bootstrap
        Resamples of sentences and examples; 0 gives no intervals.

    Other parameters are those of `logitbank.analysis.tradeoff_metric`.

    Raises
    ------
    LogitbankError
        A source that is not there, or what the curves and `tradeoff_metric` refuse.
    """
    read: list[str] = []
    named, more = banks_and_files(banks, _is_performance)
    files = [*_files(performance), *more]
    known, name = gaps(), gap or "fairness"
    if fairness_table is None:
        check_choice("gap", name, tuple(known))
        # `prompts` stands for WinoBias, which a bank may hold under another name.
        gap_prompts = prompts if known[name].prompts == "winobias" else known[name].prompts
        read.append(gap_prompts)
    if not files:
        read.insert(0, lambada)
    opened = open_banks(named, models=models, prompts=read)
    if where and not any(is_table_path(path) for path in files):
        raise UsageError("--where chooses rows of a table of performance; name one (--performance)")
    if task != TASK and not files:
        raise UsageError(f"--task {task} is read from result files; name them (--performance)")
    if files:
        curve = performance_files(files, task=task, metric=metric, where=where)
    else:
        if not opened:
            raise UsageError("there is no performance; name a bank with LAMBADA, or --performance")
        frame = shared_frames(lambada) or frame_of(opened, lambada, models)
        pieces = expected_pieces(opened, lambada)
        curve = lambada_curve(frame, metric=metric, expected=pieces, resamples=bootstrap)
    if models is not None:
        other = [*models, *(rename or {})]
        bare = {name.rsplit("/", maxsplit=1)[-1] for name in other}
        of_model = curve.filter(pl.col("model").str.split("/").list.last().is_in(bare))
        if of_model.is_empty():
            available = ", ".join(curve["model"].unique().sort().to_list())
            raise UsageError(
                f"the performance has no model {models[0]!r}; it has {available}: name one with "
                "--model, or add --rename"
            )
        curve = of_model
    if fairness_table is not None:
        fairness_table = Path(fairness_table)
        fair = table_curve(fairness_table, gap or "value")
        gap_name = gap if gap not in (None, "value") else f"gap of {fairness_table.stem}"
    else:
        if not opened:
            raise UsageError(f"a gap of {name} comes from a bank; name one, or --fairness-table")
        fair = known[name].curve(opened, gap_prompts, models, bootstrap)
        gap_name = known[name].label
    from_lambada = not files or task.startswith("lambada")
    result = tradeoff_metric(
        curve,
        fair,
        metric=(
            f"LAMBADA {METRIC_NAMES.get(metric, metric)}" if from_lambada else f"{task} {metric}"
        ),
        gap_name=str(gap_name),
        higher_is_better=False if lower_is_better else None,
        give_up=give_up,
        pair=pair,
        rename=rename,
        resamples=bootstrap,
        from_step=from_step,
    )
    summary = tradeoff_summary(result)
    partly = partly_scored_sentences(opened, read, models)
    tables = [*files, *([fairness_table] if fairness_table is not None else [])]
    return finish(
        result,
        replace(summary, left_out=(*summary.left_out, *partly)),
        title=f"Performance and fairness during training: {models_of(result)}",
        out=out,
        paper=paper,
        banks=opened,
        files=[pl.DataFrame({"file": [path.name]}) for path in tables],
        prompts=read,
        models=models,
    )


def _is_performance(path: Path) -> bool:
    return path.suffix.lower() in (".json", *SUFFIXES) and not path.is_dir()


def _files(paths: Sequence[Path]) -> list[Path]:
    """Files named directly, in folders, or by a pattern."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            what = f"the folder {path} has no .json file; name result files or a folder of them"
        elif any(sign in str(path) for sign in "*?[") and not path.exists():
            inside = [Path(name) for name in sorted(glob.glob(str(path)))]
            what = f"no file matches {path}; check the pattern"
        else:
            inside, what = [path], ""
        if not inside:
            raise UsageError(what)
        files += inside
    return files


def gaps() -> dict[str, Gap]:
    """The gaps of all families, by the names that `gap` takes."""
    return {name: gap for family in families().values() for name, gap in family.gaps.items()}


def gap_of(prompts: str) -> str:
    """The first gap that is measured on a prompt set."""
    return next(name for name, gap in gaps().items() if gap.prompts == prompts)


def own_prompts(columns: Columns) -> list[tuple[str, ...]]:
    """LAMBADA, and the first prompt set that has a gap."""
    with_gap = [gap.prompts for gap in gaps().values() if gap.prompts in columns]
    return [("lambada", with_gap[0])] if with_gap and "lambada" in columns else []


def wanted_sides(
    banks: Sequence[Bank],
    prompts: Sequence[str],
    models: Sequence[str] | None,
    bootstrap: int,
) -> list[Wanted]:
    """What a report's studies of LAMBADA and of the gap's prompts are to make for this one."""
    lambada, own = prompts
    gap = gaps()[gap_of(own)].wants(banks, own, models, bootstrap)
    return [*wanted_examples(banks, lambada, models), *gap]
