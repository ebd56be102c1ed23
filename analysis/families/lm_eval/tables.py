"""Tables of the harness's results, and the documents behind those that are means."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.summary import BASELINE, summarise
from logitbank.store.steps import Step

RESULTS = {
    **CHECKPOINT_SCHEMA,
    **dict.fromkeys(("task", "filter", "metric"), pl.String),
    **dict.fromkeys(("value", "stderr"), pl.Float64), "documents": pl.Int64,
    "chance": pl.Float64, "is_main": pl.Boolean,
}  # fmt: skip
ACCURACIES = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info")
"""Metrics of which the chance level is that of guessing."""
MAIN, FURTHER = "", "further"
"""Parts of items: the first mean of a task, and its other ones."""
_ITEMS = {**dict.fromkeys(("task", "metric", "part", "item"), pl.String), "value": pl.Float64}


def result_rows(
    place: tuple[str, str, Step],
    results: Mapping[str, Any],
    names: Mapping[str, str],
    group: str,
    means: Mapping[str, Sequence[str]],
    chance: Mapping[str, float | None],
) -> pl.DataFrame:
    """One row per task or group, filter and metric of a checkpoint: columns `RESULTS`.

    Parameters
    ----------
    results
        What the harness returns.
    names
        The name of each task in the table.
    group
        The name that was given, with its options; other groups follow it.
    means, chance
        Metrics of each task that are means, and its accuracy of guessing.
    """
    rows = []
    for task, values in results["results"].items():
        shown = names.get(task) or _group_name(task, group)
        metrics = [key for key in values if "," in key and "_stderr," not in key]
        first = next((key for key in metrics if key.partition(",")[0] in means.get(task, [])), "")
        first = first or next(iter(metrics), "")
        for key in metrics:
            metric, _, filter_name = key.partition(",")
            rows.append({
                **dict(zip(CHECKPOINT, place, strict=True)),
                "task": shown, "filter": filter_name, "metric": metric,
                "value": _number(values[key]),
                "stderr": _number(values.get(f"{metric}_stderr,{filter_name}")),
                "documents": values["sample_len"],
                "chance": chance.get(task) if metric in ACCURACIES else None,
                "is_main": key == first,
            })  # fmt: skip
    return pl.DataFrame(rows, schema=RESULTS)


def _group_name(group: str, given: str) -> str:
    """A group in the table: the name that was given, or one below it.

    >>> _group_name("blimp", "blimp:limit=10"), _group_name("mmlu_stem", "mmlu:limit=10")
    ('blimp:limit=10', 'mmlu/mmlu_stem:limit=10')
    """
    name, colon, options = given.partition(":")
    return given if group == name else f"{name}/{group}{colon}{options}"


def item_rows(
    place: tuple[str, str, Step],
    results: Mapping[str, Any],
    names: Mapping[str, str],
    means: Mapping[str, Sequence[str]],
) -> Iterator[pl.DataFrame]:
    """One row per document and metric that is a mean, for `gather_items`, of each task.

    A metric has its name without the filter `none`, as in `read_harness`.
    """
    for task, samples in results["samples"].items():
        first = ""
        rows = []
        for sample in samples:
            for metric in sample["metrics"]:
                value = _number(sample[metric]) if metric in means[task] else None
                if value is not None:
                    key = _item_metric(metric, sample["filter"])
                    first = first or key
                    part = MAIN if key == first else FURTHER
                    rows.append((names[task], key, part, str(sample["doc_id"]), value))
        if rows:
            table = pl.DataFrame(rows, schema=_ITEMS, orient="row")
            keys = zip(CHECKPOINT, place, strict=True)
            yield table.with_columns(**{key: pl.lit(own, RESULTS[key]) for key, own in keys})


def _item_metric(metric: str, filter_name: str) -> str:
    """
    >>> _item_metric("acc", "none"), _item_metric("exact_match", "strict")
    ('acc', 'exact_match,strict')
    """
    return metric if filter_name == "none" else f"{metric},{filter_name}"


def results_table(rows: pl.DataFrame, items: Items, measures: Sequence[Measure]) -> pl.DataFrame:
    """The rows of all checkpoints, with intervals and changes of means over documents."""
    keys = [*CHECKPOINT, "task", "own"]
    more = ["low", "high", *BASELINE]
    if len(items.axes):
        own = _summary(items, measures).rename({"metric": "own"}).select(*keys, *more)
    else:
        own = pl.DataFrame(schema={
            **{name: RESULTS.get(name, pl.String) for name in keys},
            **dict.fromkeys(("low", "high"), pl.Float64), **BASELINE,
        })  # fmt: skip
    filtered = pl.format("{},{}", "metric", "filter")
    rows = rows.with_columns(own=pl.when(filter="none").then("metric").otherwise(filtered))
    table = rows.join(own, on=keys, how="left", nulls_equal=True, maintain_order="left")
    order = [*CHECKPOINT, "task", "filter", "metric", "value", "stderr", "low", "high"]
    return table.select(*order, pl.exclude(*order, "own")).sort(
        "model", "run", "step", "task", "filter", nulls_last=True, maintain_order=True
    )


def _summary(items: Items, measures: Sequence[Measure]) -> pl.DataFrame:
    """`summarise`; metrics whose values are all 0 or 1 have the intervals of shares."""
    groups = [which for _, which in items.by_group()]
    values = (items.values[:, which] for which in groups)
    binary = [bool((np.isnan(own) | (own == 0) | (own == 1)).all()) for own in values]
    tables = []
    for share in {*binary}:
        own = np.concatenate([w for w, known in zip(groups, binary, strict=True) if known == share])
        tables.append(
            summarise(items.chosen(np.sort(own)), [replace(m, share=share) for m in measures])
        )
    return pl.concat(tables)


def _number(value: object) -> float | None:
    """A number; None for a text such as N/A, for NaN, and for values of several parts."""
    if isinstance(value, Real) or (hasattr(value, "item") and getattr(value, "ndim", 1) == 0):
        number = float(value)  # type: ignore[arg-type]
        return None if number != number else number
    return None
