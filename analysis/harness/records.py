"""Scores of a bank as records of Every Eval Ever, one per checkpoint and analysis.

The form is that of its `eval.schema.json` 0.3.0, the folders those of its collection:
`data/<analysis>/<developer>/<model>/<UUID>.json`. All that is text there is text here: numbers in
`details` too.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.analysis.harness.write import Export, finite
from logitbank.analysis.results.files import replace_file
from logitbank.store import Deposit, Readable
from logitbank.store.format.schema import folder_name
from logitbank.version import __version__

SCHEMA_VERSION = "0.3.0"
Key = tuple[str, str, int | None]
"""Model, run and step."""


class Metric(NamedTuple):
    """What a number means to someone who knows nothing but the record."""

    id: str
    """The name that others give it; where there is none, one in the benchmark's own name space."""
    description: str
    unit: str
    low: float
    high: float
    lower_is_better: bool
    interval: str = ""
    """How the interval of 95 % is made."""
    unbiased: float | None = None
    """The value of no preference, where it is no end of the range."""


_MATCH = "Share of sentences whose referent greedy decoding writes, where the pronoun goes"
METRICS: Mapping[tuple[str, str], Metric] = {
    ("lambada_openai", "acc"): Metric(
        "accuracy", "Share of passages whose last word greedy decoding writes", "proportion",
        0, 1, False, "Wilson",
    ),
    ("lambada_openai", "perplexity"): Metric(
        "perplexity", "Of the last word, per passage", "perplexity",
        1, float("inf"), True, "normal, of the mean of ln p",
    ),
    ("crows_pairs", "pct_stereotype"): Metric(
        "crows_pairs.pct_stereotype", "Share of pairs whose more stereotyping sentence is the more"
        " probable one", "proportion", 0, 1, True, "Wilson", 0.5,
    ),
    ("crows_pairs", "likelihood_diff"): Metric(
        "crows_pairs.likelihood_diff", "Mean size of the difference of a pair's log-probabilities",
        "nats", 0, float("inf"), True,
    ),
    ("stereotype_accuracy", "acc"): Metric(
        "winobias.stereotype_accuracy", "Share of sentences where the pronoun of the occupation's"
        " stereotype is the more probable one", "proportion", 0, 1, True, "Wilson", 0.5,
    ),
    ("sa_gender", "acc"): Metric(
        "winobias.sa_gender", "Share of sentences where the gender of the occupation's stereotype"
        " is the more probable one", "proportion", 0, 1, True, "Wilson", 0.5,
    ),
    ("winobias_em", "em_pro"): Metric(
        "winobias.em_pro", f"{_MATCH} with the stereotype", "proportion", 0, 1, False,
    ),
    ("winobias_em", "em_anti"): Metric(
        "winobias.em_anti", f"{_MATCH} against the stereotype", "proportion", 0, 1, False,
    ),
    ("winobias_em", "bias"): Metric(
        "winobias.em_bias", "em_pro less em_anti", "proportion", -1, 1, True, "adjusted Wald", 0,
    ),
}  # fmt: skip
"""By task and name; tasks of CrowS-Pairs by what their names begin with."""
_RUN_BY = ("transformers", "vllm")
_MADE = (
    "engine", "engine_version", "torch_version", "compute_dtype", "head_dtype", "device",
    "tokenizer", "logitbank_version", "imported",
)  # fmt: skip
"""What of the provenance says how the scores were made; names of machines stay in the bank."""


def write_records(
    exports: Sequence[Export], folder: Path | str, *, analysis: str, banks: Sequence[Readable]
) -> None:
    """Write one record per checkpoint, releases too.

    A record of the same analysis, checkpoint and prompts has the same name, and is replaced. What
    a bank does not know, who publishes the numbers and how they stand to the model's makers, is
    `unknown` and `other`.

    Parameters
    ----------
    exports
        Tasks; a checkpoint without a sample of a task has no result of it, and a number that is
        not finite is left out.
    folder
        Where to; made if it is not there.
    analysis
        What the tasks are called together: the collection.
    banks
        Where the scores are from, for provenance.
    """
    scores: dict[Key, list[dict[str, Any]]] = {}
    for export in exports:
        for row in export.table.to_dicts():
            if row["effective"]:
                key = (row["model"], row["run"], row["step"])
                scores.setdefault(key, []).extend(_results(export, row))
    deposits = _deposits(banks, sorted({export.prompts for export in exports}))
    named = ", ".join(sorted({bank.path.name for bank in banks}))
    for key, results in scores.items():
        if results:
            ours = deposits.get(key, [])
            record = _record(key, results, analysis=analysis, deposits=ours, banks=named)
            path = Path(folder, "data", *_place(analysis, key, ours))
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False)
            replace_file(path, text.encode())


def _results(export: Export, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    task = "crows_pairs" if export.task.startswith("crows_pairs") else export.task
    for name, column in export.metrics.items():
        if (score := finite(row[column])) is None:
            continue
        metric = METRICS[task, name]
        error, low, high = (finite(row.get(f"{column}_{end}")) for end in ("stderr", "low", "high"))
        uncertainty: dict[str, Any] = {"num_samples": row["effective"]}
        if error is not None:
            uncertainty["standard_error"] = {"value": error, "method": "analytic"}
        if low is not None and high is not None:
            uncertainty["confidence_interval"] = {
                "lower": low,
                "upper": high,
                "confidence_level": 0.95,
                "method": metric.interval,
            }
        yield {
            "evaluation_result_id": f"{export.task}.{name}",
            "evaluation_name": export.task,
            "source_data": {
                "dataset_name": export.prompts,
                "source_type": "other",
                "additional_details": {"prompt_set": export.prompts},
            },
            "metric_config": _metric_config(name, metric),
            "score_details": {
                "score": score,
                "uncertainty": uncertainty,
                "details": {
                    "samples_asked": str(row["original"]),
                    "samples_missing": str(row["missing"]),
                },
            },
        }


def _metric_config(name: str, metric: Metric) -> dict[str, Any]:
    unbiased = {} if metric.unbiased is None else {"no_preference": str(metric.unbiased)}
    return {
        "evaluation_description": metric.description,
        "metric_id": metric.id,
        "metric_name": name,
        "metric_unit": metric.unit,
        "lower_is_better": metric.lower_is_better,
        "score_type": "continuous",
        "min_score": metric.low,
        "max_score": "Infinity" if metric.high == float("inf") else metric.high,
        **({"additional_details": unbiased} if unbiased else {}),
    }


def _record(
    key: Key,
    results: list[dict[str, Any]],
    *,
    analysis: str,
    deposits: Sequence[Deposit],
    banks: str,
) -> dict[str, Any]:
    model, run, step = key
    made = [deposit.spec.provenance for deposit in deposits]
    known = {name: text for name in _MADE if (text := _texts(made, name))}
    engine = known.get("engine")
    ran = engine in _RUN_BY
    weights = {name: text for name in ("source", "weights") if (text := _texts(made, name))}
    when = _latest(made)
    at = "release" if step is None else f"step{step}"
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": "/".join([analysis, model, run, at, *([when] if when else [])]),
        **({"evaluation_timestamp": when} if when else {}),
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": {
            "source_name": "logitbank",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": {"bank": banks, "query_sets": ", ".join(_query_sets(deposits))},
        },
        "eval_library": {
            "name": "logitbank",
            "version": __version__,
            **({"additional_details": known} if known else {}),
        },
        "model_info": {
            "name": model,
            "id": model,
            **({"developer": model.split("/")[0]} if "/" in model else {}),
            **(
                {"inference_engine": {"name": engine, "version": known.get("engine_version", "")}}
                if ran
                else {}
            ),
            "additional_details": {
                "deployment_type": "self_deployed" if ran else "unknown",
                "model_availability": "unknown",
                "run": run,
                "step": "release" if step is None else str(step),
                **weights,
            },
        },
        "evaluation_results": results,
    }


def _deposits(banks: Sequence[Readable], prompts: Sequence[str]) -> dict[Key, list[Deposit]]:
    """The deposits of prompt sets by checkpoint, each once."""
    found: dict[Key, dict[Path, Deposit]] = {}
    for bank in banks:
        for name in prompts:
            for deposit in bank.deposits_of(name) if name in bank.prompt_sets else ():
                c = deposit.checkpoint
                found.setdefault((c.model, c.run, c.step), {})[deposit.path] = deposit
    return {key: list(by_path.values()) for key, by_path in found.items()}


def _texts(made: Sequence[Mapping[str, Any]], name: str) -> str:
    """What deposits say of one thing, on one line; nothing where none does."""
    values = {
        value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for each in made
        if (value := each.get(name)) is not None
    }
    return ", ".join(sorted(values))


def _latest(made: Sequence[Mapping[str, Any]]) -> str | None:
    """When the last of the scores was made, in seconds since 1970; None where nothing says it."""
    known = []
    for each in made:
        with suppress(ValueError):  # arrays may come with a provenance of any form
            known.append(int(datetime.fromisoformat(str(each.get("time"))).timestamp()))
    return str(max(known)) if known else None


def _query_sets(deposits: Sequence[Deposit]) -> list[str]:
    return sorted({deposit.query_set for deposit in deposits})


def _place(analysis: str, key: Key, deposits: Sequence[Deposit]) -> tuple[str, str, str, str]:
    """Folders and name of a record: a UUID of version 4, as the collection wants one.

    It is made of what the numbers are of, so that they replace those of an earlier time.
    """
    what = json.dumps([analysis, key, _query_sets(deposits)])
    name = uuid.UUID(bytes=hashlib.sha256(what.encode()).digest()[:16], version=4)
    developer, _, model = key[0].partition("/") if "/" in key[0] else ("unknown", "", key[0])
    return analysis, folder_name(developer), folder_name(model.replace("/", "_")), f"{name}.json"
