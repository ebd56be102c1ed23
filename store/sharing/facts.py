"""What a bank that is shared says of itself, read from its documents; the card and the page of a
shared bank say it in words. Pure.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from logitbank.store.format.index import Objects, deposit_of
from logitbank.store.format.schema import Keep

PROMPTS = re.compile(r"prompts/(.+)-[0-9a-f]{12}\.parquet")
WHAT = (
    "A bank of `logitbank`: what checkpoints of language models answered to prompts, as logits,"
    " ranks and log-sum-exp in Zarr v3 and Parquet."
)
THE_REST = "The rest is in each deposit's `zarr.json`."
SERIES = ("Model", "Run", "Checkpoints", "Steps", "Keep", "Dtype")
"""Columns of `Facts.series`."""
_MADE = ("engine", "engine_version", "logitbank_version", "compute_dtype", "device")


class Facts(NamedTuple):
    """Of one bank, all as plain text."""

    title: str
    licence: str
    citation: str
    """As it was given, with its lines."""
    series: tuple[tuple[str, ...], ...]
    """A row for each model, run and keep level, columns `SERIES`."""
    prompts: tuple[str, ...]
    size: str
    made: str
    """Engines, versions and dtypes; empty where nobody said them."""


def facts_of(objects: Objects, *, name: str) -> Facts:
    """What the documents among a bank's objects say; `name` stands for a missing title."""
    about = _logitbank(objects["zarr.json"].text)
    deposits = [
        _logitbank(value.text)
        for path, value in sorted(objects.items())
        if (folder := deposit_of(path)) and path == f"{folder}/zarr.json"
    ]
    prompts = {unquote(match[1]) for path in objects if (match := PROMPTS.fullmatch(path))}
    size = sum(value.digest.bytes for value in objects.values())
    return Facts(
        title=line(about.get("title")) or name,
        licence=line(about.get("licence")),
        citation=str(about.get("citation") or "").strip(),
        series=tuple(_rows(deposits)),
        prompts=tuple(sorted(prompts)),
        size=f"{len(objects):,} objects, {size:,} bytes",
        made=_made(deposits),
    )


def line(value: object) -> str:
    """Text on one line; nothing of None."""
    return "" if value is None else " ".join(str(value).split())


def _rows(deposits: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    series: dict[tuple[str, ...], set[Any]] = {}
    for attributes in deposits:
        level = str(Keep(attributes.get("keep"), attributes.get("keep_k")))  # type: ignore[arg-type]
        key = (*(line(attributes.get(name)) for name in ("model", "run")), level)
        series.setdefault((*key, line(attributes.get("dtype"))), set()).add(attributes.get("step"))
    return [
        (model, run, str(len(steps)), _span(steps), keep, dtype)
        for (model, run, keep, dtype), steps in series.items()
    ]


def _span(steps: set[Any]) -> str:
    numbers = sorted(step for step in steps if isinstance(step, int))
    parts = [f"{numbers[0]:,} to {numbers[-1]:,}"] if numbers else []
    return " and ".join([*parts, *(["release"] if None in steps else [])])


def _made(deposits: Iterable[Mapping[str, Any]]) -> str:
    values_by_name: dict[str, set[str]] = {}
    for attributes in deposits:
        made = attributes.get("provenance")
        provenance = made if isinstance(made, dict) else {}
        for name in _MADE:
            if provenance.get(name) is not None:
                values_by_name.setdefault(name, set()).add(line(provenance[name]))
    return "; ".join(
        f"{name} {', '.join(sorted(values))}" for name, values in values_by_name.items()
    )


def _logitbank(text: str | None) -> dict[str, Any]:
    try:
        attributes = json.loads(text or "")["attributes"]["logitbank"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return attributes if isinstance(attributes, dict) else {}
