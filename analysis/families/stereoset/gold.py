"""StereoSet's gold files, and the files of somebody's own in their layout."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.analysis.families.stereoset.scores import (
    INTER,
    INTRA,
    LABELS,
    some,
)
from logitbank.analysis.frames.json_files import json_object
from logitbank.errors import UsageError

GOLD = pl.Schema(
    {
        "task": pl.String,
        "example": pl.String,
        "candidate": pl.String,
        "term": pl.String,
        "domain": pl.String,
        "label": pl.String,
        "position": pl.Int64,
    }
)


def read_gold(path: Path) -> pl.DataFrame:
    """Candidates of a gold file with the columns of `GOLD`, in the order of the file.

    The term is `target_english` where there is one, since inflection splits the German terms.

    Raises
    ------
    UsageError
        Not there, not JSON, of another shape; labels that are not the three, an example without
        one of each, or a candidate that is there twice.
    """
    return gold_of(json_object(path, "gold file"), path)


def gold_of(content: Mapping[str, Any], path: Path) -> pl.DataFrame:
    """As `read_gold`, from the file's parsed content; `path` is for messages."""
    data = content.get("data")
    lists = data if isinstance(data, dict) else {}
    lists = {task: lists[task] for task in (INTRA, INTER) if task in lists}
    if not any(lists.values()) or not all(isinstance(entries, list) for entries in lists.values()):
        raise UsageError(
            f"{path} is no StereoSet gold file: it has no lists data.{INTRA} and data.{INTER} of "
            "examples; give StereoSet's dev.json or one in its layout"
        )
    rows = [row for task, examples in lists.items() for row in _rows(examples, task, path)]
    gold = pl.DataFrame(rows, schema=GOLD, orient="row")
    _check_gold(gold, path)
    return gold


def _rows(examples: Sequence[Any], task: str, path: Path) -> list[tuple[Any, ...]]:
    rows, invalid = [], []
    for position, example in enumerate(examples):
        try:
            term = example.get("target_english") or example["target"]
            candidates = [
                (
                    task,
                    example["id"],
                    s["id"],
                    term,
                    example["bias_type"],
                    s["gold_label"],
                    position,
                )
                for s in example["sentences"]
            ]
        except (AttributeError, KeyError, TypeError):
            candidates = []
        if candidates and all(
            isinstance(text, str) and text for row in candidates for text in row[1:-1]
        ):
            rows += candidates
        else:
            invalid.append(name_of(example, position + 1))
    if invalid:
        raise UsageError(
            f"{path}, {task}: entries that are no example: {some(invalid)}; one has the texts id, "
            "target and bias_type, and sentences, each of them with the texts id and gold_label"
        )
    return rows


def name_of(entry: object, at: int) -> str:
    """An entry by its id, or by its place where that is no text."""
    name = entry.get("id") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"number {at}"


def _check_gold(gold: pl.DataFrame, path: Path) -> None:
    invalid = gold.filter(~pl.col("label").is_in(LABELS))
    if len(invalid):
        raise UsageError(
            f"{path}: candidates with another gold_label than {', '.join(LABELS)}: "
            f"{some(invalid['candidate'])}; the first is {invalid['label'][0]!r}"
        )
    twice = gold.filter(pl.col("candidate").is_duplicated())
    if len(twice):
        names = twice["candidate"].unique(maintain_order=True)
        raise UsageError(f"{path}: candidates that are there twice: {some(names)}; an id names one")
    whole = gold.group_by("task", "example", maintain_order=True).agg(
        fine=(pl.len() == len(LABELS)) & (pl.col("label").n_unique() == len(LABELS))
    )
    bare = whole.filter(~pl.col("fine"))
    if len(bare):
        raise UsageError(
            f"{path}: examples without a candidate of each label: {some(bare['example'])}; each "
            f"has one {', one '.join(LABELS)}"
        )
