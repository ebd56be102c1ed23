"""Scores of a bank as result files in the layout of lm-evaluation-harness, one per checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.frames.json_files import json_object
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.harness.read import KIND, OWN_KEY, checked_harness
from logitbank.analysis.results.files import replace_file
from logitbank.errors import UsageError
from logitbank.store.format.schema import folder_name
from logitbank.version import __version__

HIGHER_IS_BETTER = {
    "acc": True,
    "perplexity": False,
    "pct_stereotype": False,
    "likelihood_diff": False,
}


class Export(NamedTuple):
    """The numbers of one task, for files that others read."""

    task: str
    prompts: str
    """The prompt set that they are of."""
    table: pl.DataFrame
    """model, run, step; the metrics' columns, and where there are such `<column>_stderr`,
    `<column>_low` and `<column>_high`; `effective` samples, `original` ones, `missing`."""
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
    merged = {path: _merged(path, document) for path, document in documents.items()}
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


def _merged(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The document, with the other tasks of a file of ours that is there."""
    if not path.exists():
        return document
    existing = json_object(path, KIND)
    checked_harness(existing, path)
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
