"""What evaluation tools say of one checkpoint, in one form, and how files of others are read."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logitbank.errors import UsageError
from logitbank.store.format.schema import Json

MAX_LINE = 2**28
"""Bytes of a line beyond which a file is refused: nothing that a tool writes is as long."""


@dataclass(frozen=True, slots=True)
class Item:
    """One example: a text, and continuations of it with what a model gave them."""

    id: str
    text: str
    """What stands before the continuations, for people; the whole text where there is none."""
    pairs: tuple[tuple[str, str], ...]
    """Context and continuation, of each that was compared."""
    logprobs: tuple[float | None, ...]
    """Natural logarithm of the probability of each continuation, all its tokens together; None
    where the tool did not say it."""
    greedy: bool | None = None
    """Of a single continuation: whether greedy decoding writes it; None where nobody said."""
    answer: int | None = None
    """Number of the right continuation."""
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a file says: items of one task, by one checkpoint as far as the file names it."""

    tool: str
    version: str | None
    task: str
    items: tuple[Item, ...]
    model: str | None
    step: int | None
    files: tuple[Path, ...]
    """What was read, the file that was named first."""
    left_out: int = 0
    """Examples of which the file says no log-probability."""


def provenance(
    tool: str, version: str | None, task: str, files: Mapping[str, str]
) -> dict[str, Json]:
    """Which tool made a deposit, and of which files (name to SHA-256) it comes."""
    named: list[Json] = [{"name": name, "sha256": sha256} for name, sha256 in files.items()]
    return {
        "engine": tool,
        **({} if version is None else {"engine_version": version}),
        "imported": {"task": task, "files": named},
    }


def json_lines(path: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, each with where it is, for messages; empty lines are left out.

    Raises
    ------
    UsageError
        The file is not there, or a line is no JSON object.
    """
    if not path.is_file():
        raise UsageError(f"there is no {kind} {path}; check the path")
    with path.open("rb") as file:
        number = 0
        while data := file.readline(MAX_LINE):
            number += 1
            where = f"{path}, line {number}"
            if not data.strip():
                continue
            try:
                value = json.loads(data)
            except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors are ValueErrors
                cut = "" if data.endswith(b"\n") else "; the file may be cut short"
                raise UsageError(f"{where} is no JSON, as a {kind} is ({error}){cut}") from error
            if not isinstance(value, dict):
                raise UsageError(f"{where} is no JSON object, as each line of a {kind} is")
            yield where, value


def logprob_of(value: object, where: str) -> float:
    """A log-probability that may be written as text.

    Raises
    ------
    UsageError
        It is no number, not finite, or that of a probability above 1.
    """
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not -math.inf < number <= 1e-3:
        raise UsageError(
            f"{where} has {str(value)[:40]!r} for a log-probability, which is a finite number of"
            " at most 0; evaluate that checkpoint again, or leave the line out"
        )
    return number


def flag_of(value: object) -> bool | None:
    """A truth value that may be written as text.

    >>> flag_of("False"), flag_of(True), flag_of(None)
    (False, True, None)
    """
    return {"true": True, "false": False}.get(str(value).lower())


def text_columns(document: object) -> dict[str, str]:
    """Short plain values of a document's fields, as text: columns of the prompts.

    >>> text_columns({"category": "age", "n": 3, "choices": ["a", "b"]})
    {'doc_category': 'age', 'doc_n': '3'}
    """
    if not isinstance(document, dict):
        return {}
    return {
        f"doc_{key}": str(value)
        for key, value in document.items()
        if isinstance(value, str | int | float) and len(str(value)) <= _LONGEST
    }


_LONGEST = 80
"""Letters of a value that may tell items into groups; longer ones are texts of their own."""
