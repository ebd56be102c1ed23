"""Logs of runs, `runs/<time>-<hex8>.jsonl`: one JSON object a line, each with its own digest.

A log is appended to while its run lasts, so no commit vouches for it: every line does for itself by
its digest, and for its place by its number.
"""

import json
import re

from logitbank.store.files import objects
from logitbank.store.files.documents import SELF_DIGEST
from logitbank.store.format.schema import Json

FOLDER = "runs"
NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}\.jsonl")


def line_bytes(document: dict[str, Json]) -> bytes:
    """One line: the document with the SHA-256 (hex) of its line without it as the last member."""
    plain = {key: value for key, value in document.items() if key != SELF_DIGEST}
    return _line(plain | {SELF_DIGEST: objects.digest_of(_line(plain)).sha256})


def _line(document: dict[str, Json]) -> bytes:
    return (json.dumps(document, allow_nan=False) + "\n").encode()


def damage(data: bytes) -> str:
    """What is wrong with a log, in words; empty where nothing is.

    A last line that was cut is not: whatever killed the run, or a full disk, leaves one.
    """
    lines = _lines(data)
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        if not (_is_whole(line, number) or (last and _is_cut(line, number))):
            return f"its line {number + 1} is not what was written there"
    return ""


def _is_cut(line: bytes, number: int) -> bool:
    """The beginning of a line, without its end: not more than it, and all of it only if it fits."""
    if line.endswith(b"\n"):
        return False
    try:
        json.JSONDecoder().raw_decode(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return True
    return _is_whole(line + b"\n", number)


def _is_whole(line: bytes, number: int) -> bool:
    try:
        document = json.loads(line)
        return bool(document["line"] == number and line_bytes(document) == line)
    except (ValueError, RecursionError, KeyError, TypeError):
        return False


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", data)
