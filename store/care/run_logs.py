"""Logs of runs, `runs/<time>-<hex8>.jsonl`: one JSON object a line, each with its own digest.

A run appends to its log until it ends, so no commit lists the log. Each line has its own digest and
its number.
"""

import json
import re

from logitbank.store.files import objects
from logitbank.store.files.documents import SELF_DIGEST
from logitbank.store.format.schema import Json

FOLDER = "runs"
NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}\.jsonl")


def line_bytes(document: dict[str, Json]) -> bytes:
    """One line. Its last member is the SHA-256 (hex) of the line without that member."""
    plain = {key: value for key, value in document.items() if key != SELF_DIGEST}
    return _line(plain | {SELF_DIGEST: objects.compute_digest(_line(plain)).sha256})


def _line(document: dict[str, Json]) -> bytes:
    return (json.dumps(document, allow_nan=False) + "\n").encode()


def damage(data: bytes) -> str:
    """Description of the damage of a log, or an empty text.

    A truncated last line is not damage: a killed run or a full disk leaves one.
    """
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)
    for number, line in enumerate(lines):
        is_last = number == len(lines) - 1
        if not (_is_complete(line, number) or (is_last and _is_truncated(line, number))):
            return f"its line {number + 1} was changed"
    return ""


def _is_truncated(line: bytes, number: int) -> bool:
    """Whether the line is a prefix, or has all but the line feed."""
    if line.endswith(b"\n"):
        return False
    try:
        json.JSONDecoder().raw_decode(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return True
    return _is_complete(line + b"\n", number)


def _is_complete(line: bytes, number: int) -> bool:
    try:
        document = json.loads(line)
        return bool(document["line"] == number and line_bytes(document) == line)
    except (ValueError, RecursionError, KeyError, TypeError):
        return False
