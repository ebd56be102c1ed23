"""Result files of lm-evaluation-harness: read as one tidy table, and written one per checkpoint.

A file is one model at one training step with the metrics of its tasks. The old layout names a
metric `acc`, the new one `acc,none` (with the filter that was applied to the answers).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.frames.json_files import json_object
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.results.files import replace_file
from logitbank.errors import UsageError
from logitbank.store.format.limits import MAX_STEP
from logitbank.store.format.schema import folder_name
from logitbank.store.steps import RunStep, is_token_count, parse_name
from logitbank.version import __version__
from logitbank.wording import checkpoint_name, counted

SCHEMA = {
    "model": pl.String,
    "run": pl.String,
    "step": pl.Int64,
    "task": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "stderr": pl.Float64,
    "file": pl.String,
}
NEW_NAMES = {"ppl": "perplexity", "likelihood_difference": "likelihood_diff"}
"""Names of the old layout that the new one changed."""
OWN_KEY = "logitbank"
"""Where our own files say model, run and step."""
KIND = "result file"
SHOWN = 12


def read_harness(paths: Iterable[Path | str], *, task: str = "lambada_openai") -> pl.DataFrame:
    """The metrics of one task in result files, one row per file and metric.

    Columns model, run, step, task, metric, value, stderr (NaN where there is none), file; sorted
    by model, run, step and metric. A metric has the name of the new layout without its filter
    `none`: `acc`, `perplexity` (`ppl` in the old one), `exact_match,strict-match`. Values that are
    text, such as "N/A" and the alias, are left out. Files that repeat another count once.

    Model and step come from the configuration in the file (`pretrained=…,revision=step13000`),
    and where that lacks one, from the file's name (`pythia-160m-step13000.json`). Names are read as
    those of checkpoints are. The run is that of the revision (`stage1-step1000`), else `main`.

    Raises
    ------
    UsageError
        A file that is not there, is no JSON, or is no result file; one without the task, without a
        number of it, or without a step; a value that is not finite; a standard error that is
        negative or infinite; two files that differ in a metric of one model and step.
    """
    tables = [_read(Path(path), task) for path in paths]
    if not tables:
        raise UsageError("no result file was given; name one or more .json files")
    return _merged(pl.concat(tables))


def _results(document: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """The `results` of a document: task to metrics."""
    results = document.get("results")
    if not isinstance(results, dict) or not all(isinstance(v, dict) for v in results.values()):
        raise UsageError(
            f"{path} is no result file of lm-evaluation-harness: it has no `results` by task"
        )
    return results


def _read(path: Path, task: str) -> pl.DataFrame:
    document = json_object(path, KIND)
    results = _results(document, path)
    if task not in results:
        names = sorted(results)
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        raise UsageError(
            f"{path} has no results of task {task!r}; it has "
            f"{', '.join(names[:SHOWN]) or 'none'}{more}; choose one with --task"
        )
    model, run, step = checkpoint_of(document, path)
    metrics = _metrics(results[task], path)
    if not metrics:
        raise UsageError(f"{path} has no number of task {task!r}; leave the file out")
    rows = [
        (model, run, step, task, metric, value, stderr, str(path))
        for metric, (value, stderr) in metrics.items()
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def checkpoint_of(document: Mapping[str, Any], path: Path) -> tuple[str, str, int]:
    """Model, run and step that a document is of.

    >>> config = {"model_args": "pretrained=EleutherAI/pythia-70m,revision=step512"}
    >>> checkpoint_of({"config": config}, Path("x.json"))
    ('EleutherAI/pythia-70m', 'main', 512)
    >>> checkpoint_of({}, Path("evals/pythia-160m-step13000.json"))
    ('pythia-160m', 'main', 13000)
    """
    if isinstance(written := document.get(OWN_KEY), dict):
        model, run, step = (written.get(key) for key in ("model", "run", "step"))
        named = isinstance(model, str) and isinstance(run, str)
        if named and step is None:
            raise UsageError(f"{path} is of a release, which has no step; leave it out")
        if not (named and type(step) is int and 0 <= step <= MAX_STEP):
            raise UsageError(
                f"{path}: its key {OWN_KEY} has the model {model!r}, run {run!r} and step "
                f"{step!r:.40}; they are two texts and a number of steps"
            )
        return str(model), str(run), step
    config = document.get("config")
    config = config if isinstance(config, dict) else {}
    args = _model_args(config.get("model_args"))
    model_name = document.get("model_name")
    pretrained = args.get("pretrained") or (model_name if isinstance(model_name, str) else "")
    revision = args.get("revision") or str(config.get("model_revision") or "")
    in_revision = parse_name(revision)
    before, in_path = _split(pretrained)
    before_name, in_name = _split(path.stem)
    places = (in_revision, in_path, in_name)
    found = next((each for each in places if each and each.step is not None), None)
    if found is None or found.step is None:
        raise UsageError(
            f"no training step is in {path}: neither its configuration (revision "
            f"{revision or 'none'!r}) nor its name has one; name the file <model>-step<number>.json"
        )
    model = before or before_name
    if not model:
        raise UsageError(
            f"no model is named in {path}, neither in its configuration nor in its name; "
            "name the file <model>-step<number>.json"
        )
    return model, found.run if found is in_revision else "main", found.step


def _model_args(args: object) -> dict[str, str]:
    """From `a=b,c=d`, or the mapping that newer files have."""
    if isinstance(args, dict):
        return {str(key): str(value) for key, value in args.items() if value is not None}
    if not isinstance(args, str):
        return {}
    pairs = (part.split("=", maxsplit=1) for part in args.split(",") if "=" in part)
    return {key.strip(): value.strip() for key, value in pairs}


def _split(text: str) -> tuple[str, RunStep | None]:
    """The model's name in a name or path, and the step that follows it: `org/m-step5`, `m/step5`.

    A number alone may be a date or a model's size, and is no step here.
    """
    parts = text.strip().rstrip("/").split("/")
    for index in range(len(parts) - 1, -1, -1):
        named = parse_name(part := parts[index])
        if named and named.step is not None and not (part.isdigit() or is_token_count(part)):
            run = [] if named.run == "main" else [named.run]
            return _model_name("/".join((*parts[:index], *run)), local=len(parts) > 2), named
    return _model_name("/".join(parts), local=len(parts) > 2), None


def _model_name(name: str, *, local: bool) -> str:
    """A hub name as it is; of a folder on somebody's disk its last part."""
    if local or name.startswith(("/", ".", "~")):
        return name.rsplit("/", maxsplit=1)[-1].lstrip(".~")
    return name


def _metrics(values: Mapping[str, object], path: Path) -> dict[str, tuple[float, float]]:
    """Metric to value and standard error."""
    known: dict[str, float] = {}
    for key, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue  # "N/A", an alias
        name, _, kind = key.partition(",")
        is_error = name.endswith("_stderr")
        base = name.removesuffix("_stderr")
        base = NEW_NAMES.get(base, base) + (f",{kind}" if kind not in ("", "none") else "")
        known[f"{base} stderr" if is_error else base] = _float(value)
    # A standard error of NaN is that of one example.
    invalid = [
        (name, v)
        for name, v in known.items()
        if (not 0 <= v < math.inf and v == v if name.endswith(" stderr") else v - v != 0)
    ]
    if invalid:
        name, value = invalid[0]
        what = "no standard error" if name.endswith(" stderr") else "not finite"
        raise UsageError(
            f"{path} has {value} for {name}, which is {what} ({len(invalid)} such values); leave "
            "the file out, or evaluate that checkpoint again"
        )
    nan = float("nan")
    return {
        name: (value, known.get(f"{name} stderr", nan))
        for name, value in known.items()
        if not name.endswith(" stderr")
    }


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of 400 digits
        return math.inf


def _merged(table: pl.DataFrame) -> pl.DataFrame:
    """One row per checkpoint and metric; an error where files disagree."""
    key = ["model", "run", "step", "task", "metric"]
    apart = table.group_by(key, maintain_order=True).agg(
        pl.col("value").n_unique().alias("values"), pl.col("file").alias("files"), pl.col("value")
    )
    if len(apart := apart.filter(pl.col("values") > 1)):
        row = apart.row(0, named=True)
        other = next(i for i, v in enumerate(row["value"]) if v != row["value"][0])
        raise UsageError(
            f"{row['files'][0]} and {row['files'][other]} are both {row['model']} step "
            f"{row['step']}, with {row['metric']} {row['value'][0]:g} and "
            f"{row['value'][other]:g} ({len(apart)} such cases); leave one of them out"
        )
    return table.unique(key, keep="first", maintain_order=True).sort(key)


HIGHER_IS_BETTER = {
    "acc": True,
    "perplexity": False,
    "pct_stereotype": False,
    "likelihood_diff": False,
}


class Export(NamedTuple):
    """The numbers of one task, for files that others read."""

    task: str
    table: pl.DataFrame
    """model, run, step; the metrics' columns, and `<column>_stderr` where there are such;
    `effective` samples, `original` ones, `missing`."""
    metrics: Mapping[str, str]
    """As of `write_harness`."""


def write_harness(
    table: pl.DataFrame,
    folder: Path | str,
    *,
    task: str,
    metrics: Mapping[str, str],
    samples: str,
    original: str | None = None,
    missing: str | None = None,
) -> list[Path]:
    """Write one file per checkpoint, in the new layout, and return the paths.

    `read_harness` reads the same numbers, model, run and step from them. A file that is there and
    is of the same checkpoint keeps its other tasks. A release has no step and is not written.

    Parameters
    ----------
    table
        model, run, step and the columns named by `metrics` and `samples`.
    folder
        Where to; made if it is not there.
    task
        Under which the metrics are written, such as `lambada_openai`.
    metrics
        Metric's name in the files to column; a column `<metric>_stderr` beside it is written too.
    samples
        Column with the number of examples; a row of none is not written.
    original
        Column with the number of examples that were asked for, where it is known.
    missing
        Column with how many of these lack something: a file with any is marked `partial`.

    Raises
    ------
    UsageError
        Another file, of another checkpoint or no result file, has the name of one to be written;
        nothing is written then.
    """
    folder = Path(folder)
    documents = {
        folder / _file_name(row): {
            **_document(row, task, metrics),
            **_counts(row, task, samples=samples, original=original, missing=missing),
        }
        for row in table.filter(pl.col("step").is_not_null(), pl.col(samples) > 0).to_dicts()
    }
    merged = {path: _with_other_tasks(path, document) for path, document in documents.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for path, document in merged.items():
        text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
        replace_file(path, text.encode())
    return list(merged)


def _file_name(row: Mapping[str, Any]) -> str:
    run = "" if row["run"] == "main" else f"-{folder_name(row['run'])}"
    return f"results_{folder_name(row['model'])}{run}-step{row['step']}.json"


def _counts(
    row: Mapping[str, Any], task: str, *, samples: str, original: str | None, missing: str | None
) -> dict[str, Any]:
    """Samples as lm-evaluation-harness tells them, and whether they are all."""
    counts = {} if original is None else {"original": row[original]}
    partial = {} if missing is None else {"partial": {task: row[missing] > 0}}
    return {"n-samples": {task: {**counts, "effective": row[samples]}}, **partial}


def _document(row: Mapping[str, Any], task: str, metrics: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {"alias": task}
    for metric, column in metrics.items():
        values[f"{metric},none"] = finite(row[column])
        error = finite(row.get(f"{column}_stderr"))
        values[f"{metric}_stderr,none"] = "N/A" if error is None else error
    known = {name: value for name, value in values.items() if value is not None}
    better = {name: HIGHER_IS_BETTER[name] for name in metrics if name in HIGHER_IS_BETTER}
    revision = f"step{row['step']}"
    return {
        "results": {task: known},
        # Who computed the numbers, which are not of a version of the harness's own task.
        "versions": {task: f"logitbank {__version__}"},
        "n-shot": {task: 0},
        "higher_is_better": {task: better},
        "config": {
            "model": "logitbank",
            "model_args": {"pretrained": row["model"], "revision": revision},
        },
        "model_name": row["model"],
        OWN_KEY: {name: row[name] for name in CHECKPOINT},
    }


def finite(value: float | None) -> float | None:
    """A number as JSON has them; None where it is missing, NaN or infinite."""
    return None if value is None or value - value != 0 else float(value)


def _with_other_tasks(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The document, with the other tasks of a file of ours that is there."""
    if not path.exists():
        return document
    existing = json_object(path, KIND)
    _results(existing, path)
    if existing.get(OWN_KEY) != document[OWN_KEY]:
        raise UsageError(
            f"{path} is there and is not of this bank's checkpoint; choose another folder with "
            "--save-results"
        )
    return {
        key: {**existing.get(key, {}), **value} if key in PER_TASK else value
        for key, value in document.items()
    }


PER_TASK = ("results", "versions", "n-shot", "higher_is_better", "n-samples", "partial")


def save_exports(exports: Sequence[Export], *, folder: Path, partial: bool) -> None:
    """Write several tasks as result files, with their sample counts.

    Raises
    ------
    UsageError
        A checkpoint lacks some of the expected samples and `partial` is false; or as
        `write_harness`.
    """
    for export in exports if not partial else ():
        rows = export.table.filter(pl.col("step").is_not_null())
        if len(incomplete := rows.filter(pl.col("missing") > 0)):
            row = incomplete.row(0, named=True)
            raise UsageError(
                f"{export.task}: {row['original'] - row['missing']:,} of "
                f"{counted(row['original'], 'sample')} are scored at {checkpoint_name(row)} "
                f"({len(incomplete):,} of {counted(len(rows), 'checkpoint')} are partial); finish "
                "the extraction, or save what there is in Python with partial=True"
            )
    counts = {"samples": "effective", "original": "original", "missing": "missing"}
    for export in exports:
        write_harness(export.table, folder, task=export.task, metrics=export.metrics, **counts)
