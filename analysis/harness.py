"""Result files of lm-evaluation-harness as one tidy table.

A file has the metrics of tasks for one model at one training step. The old layout names a
metric `acc`, the new one `acc,none` (with the filter that was applied to the answers).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.analysis.frames.input_files import read_json_object
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.errors import UsageError
from logitbank.store.format.limits import MAX_STEP
from logitbank.store.steps import RunStep, is_token_count, parse_name

SCHEMA = {
    **CHECKPOINT_SCHEMA,
    "task": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "stderr": pl.Float64,
    "file": pl.String,
}
NEW_NAMES = {"ppl": "perplexity", "likelihood_difference": "likelihood_diff"}
"""Names of the old layout that the new one changed."""
_CHECKPOINT_KEY = "logitbank"
"""Key of our own files that contains model, run and step."""
_KIND = "result file of lm-evaluation-harness"
_RENAME = "Name the file <model>-step<number>.json."


LAMBADA = "lambada_openai"


def read_harness(paths: Iterable[Path | str], *, task: str = LAMBADA) -> pl.DataFrame:
    """The metrics of one task in result files, one row per file and metric.

    Columns model, run, step, task, metric, value, stderr (NaN if missing), file; sorted by model,
    run, step and metric. A metric has the name of the new layout without its filter `none`: `acc`,
    `perplexity` (`ppl` in the old one), `exact_match,strict-match`. Values that are text, such as
    "N/A" and the alias, are ignored. Files that repeat another count once.

    Model and step come from the configuration in the file (`pretrained=…,revision=step13000`),
    otherwise from the file's name (`pythia-160m-step13000.json`). Names are read like those of
    checkpoints. The run is that of the revision (`stage1-step1000`), otherwise `main`.

    Raises
    ------
    UsageError
        A file that does not exist or is not a result file; one without the task, a number or a
        step; a value that is not finite; a standard error that is negative or infinite; two files
        that differ in a metric of one model and step.
    """
    tables = [_read(Path(path), task) for path in paths]
    if not tables:
        raise UsageError("Name one or more result files (.json).")
    table, key = pl.concat(tables), ["model", "run", "step", "task", "metric"]
    different = table.filter(pl.col("value").n_unique().over(key) > 1)
    if len(different):
        first = different.row(0, named=True)
        same = different.filter(*(pl.col(name) == first[name] for name in key))
        other = same.filter(pl.col("value") != first["value"]).row(0, named=True)
        raise UsageError(
            f"{first['file']} and {other['file']} differ in {first['metric']} of {first['model']} "
            f"step {first['step']}: {first['value']:g} and {other['value']:g}. Leave one out."
        )
    return table.unique(key, keep="first", maintain_order=True).sort(key)


def _read(path: Path, task: str) -> pl.DataFrame:
    document = read_json_object(path, _KIND)
    results = _results(document, path)
    if task not in results:
        names = f"{', '.join(sorted(results)[:8])}{', …' * (len(results) > 8)}"
        raise UsageError(f"{path} has no results of task {task!r}. It has {names or 'none'}.")
    model, run, step = document_checkpoint(document, path)
    rows = [
        (model, run, step, task, metric, value, stderr, str(path))
        for metric, (value, stderr) in _metrics(results[task], path).items()
    ]
    if not rows:
        raise UsageError(f"{path} has no number for task {task!r}. Leave it out.")
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def main_task(paths: Sequence[Path]) -> str:
    """The task that files are about: LAMBADA if the first has it, else its only one.

    Raises
    ------
    UsageError
        It has several other tasks, or is no result file.
    """
    if not paths:
        return LAMBADA
    tasks = sorted(_results(read_json_object(paths[0], _KIND), paths[0]))
    if LAMBADA in tasks or not tasks:
        return LAMBADA
    if len(tasks) > 1:
        names = f"{', '.join(tasks[:8])}{', …' * (len(tasks) > 8)}"
        raise UsageError(
            f"{paths[0]} has several tasks, and LAMBADA is none of them: {names}. Choose one in "
            "Python: `read_harness` and `tradeoff_metric` of logitbank.analysis."
        )
    return tasks[0]


def _results(document: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """The `results` of a document: task to metrics."""
    results = document.get("results")
    if not isinstance(results, dict) or not all(isinstance(v, dict) for v in results.values()):
        raise UsageError(f"{path} is not a {_KIND}: it has no `results` by task.")
    return results


def document_checkpoint(document: Mapping[str, Any], path: Path) -> tuple[str, str, int]:
    """Model, run and step of a document.

    >>> config = {"model_args": "pretrained=EleutherAI/pythia-70m,revision=step512"}
    >>> document_checkpoint({"config": config}, Path("x.json"))
    ('EleutherAI/pythia-70m', 'main', 512)
    >>> document_checkpoint({}, Path("evals/pythia-160m-step13000.json"))
    ('pythia-160m', 'main', 13000)
    """
    if isinstance(checkpoint := document.get(_CHECKPOINT_KEY), dict):
        model, run, step = (checkpoint.get(key) for key in CHECKPOINT)
        names = isinstance(model, str) and isinstance(run, str)
        if not (names and type(step) is int and 0 <= step <= MAX_STEP):
            raise UsageError(
                f"{path} has an invalid checkpoint in {_CHECKPOINT_KEY!r}: model {model!r:.40}, "
                f"run {run!r:.40}, step {step!r:.40}. Results need a training step."
            )
        return str(model), str(run), step
    config = document.get("config")
    config = config if isinstance(config, dict) else {}
    args, name = _model_args(config.get("model_args")), document.get("model_name")
    pretrained = args.get("pretrained") or (name if isinstance(name, str) else "")
    revision = args.get("revision") or str(config.get("model_revision") or "")
    in_revision = parse_name(revision)
    model, in_path = _split(pretrained)
    file_model, in_name = _split(path.stem)
    steps = (in_revision, in_path, in_name)
    found = next((each for each in steps if each and each.step is not None), None)
    if found is None or found.step is None:
        raise UsageError(
            f"{path} has no training step: neither revision {revision or 'none'!r} nor the name of "
            f"the file contains one. {_RENAME}"
        )
    if not model and not file_model:
        raise UsageError(f"{path} has no model name. {_RENAME}")
    return model or file_model, found.run if found is in_revision else "main", found.step


def _model_args(args: object) -> dict[str, str]:
    """From `a=b,c=d`, or the mapping in newer files."""
    if isinstance(args, dict):
        return {str(key): str(value) for key, value in args.items() if value is not None}
    if not isinstance(args, str):
        return {}
    pairs = (part.split("=", maxsplit=1) for part in args.split(",") if "=" in part)
    return {key.strip(): value.strip() for key, value in pairs}


def _split(text: str) -> tuple[str, RunStep | None]:
    """The model's name in a name or path, and the step after it: `org/m-step5`, `m/step5`.

    A number alone may be a date or a model's size, and is not a step here.
    """
    parts = text.strip().rstrip("/").split("/")
    local = len(parts) > 2
    for index in range(len(parts) - 1, -1, -1):
        named = parse_name(part := parts[index])
        if named and named.step is not None and not (part.isdigit() or is_token_count(part)):
            run = [] if named.run == "main" else [named.run]
            return _model_name("/".join((*parts[:index], *run)), local=local), named
    return _model_name("/".join(parts), local=local), None


def _model_name(name: str, *, local: bool) -> str:
    """A hub name, or the last part of a local path."""
    if local or name.startswith(("/", ".", "~")):
        return name.rsplit("/", maxsplit=1)[-1].lstrip(".~")
    return name


def _metrics(values: Mapping[str, object], path: Path) -> dict[str, tuple[float, float]]:
    """Metric to value and standard error."""
    numbers: dict[str, float] = {}
    errors: dict[str, float] = {}
    for key, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue  # "N/A", an alias
        name, _, kind = key.partition(",")
        base = name.removesuffix("_stderr")
        metric = NEW_NAMES.get(base, base) + (f",{kind}" if kind not in ("", "none") else "")
        number = float(value) if abs(value) < 1e308 or value != value else math.inf
        is_error = name != base
        # A standard error of NaN is that of one example.
        valid = number != number or 0 <= number < math.inf if is_error else math.isfinite(number)
        if not valid:
            raise UsageError(
                f"{path} has {number} for {key}, which is not a valid number. Leave it out, or "
                "evaluate that checkpoint again."
            )
        (errors if is_error else numbers)[metric] = number
    return {name: (value, errors.get(name, math.nan)) for name, value in numbers.items()}
