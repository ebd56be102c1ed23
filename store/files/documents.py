"""JSON documents: limited in size, with a digest of their own."""

import json
import re
from pathlib import Path
from typing import Any

from logitbank.errors import DamagedError
from logitbank.store.files.objects import compute_digest, read_file

SELF_DIGEST = "sha256"
MAX_JSON = 2**28
"""Maximum bytes of a document. A seal of the largest number of blocks has 160 MB."""
MAX_DEPTH = 100
"""Objects and lists in each other. Python reads about 1,000, and then fails to write them."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; `verified.document` also compares its digest.

    Raises FileNotFoundError, or DamagedError if it is not a JSON object.
    """
    return parse_json(path, read_file(path, most=MAX_JSON)[1])


def parse_json(path: Path | str, data: bytes) -> dict[str, Any]:
    """The JSON object in a file's bytes, or DamagedError."""
    try:
        value = json.loads(data.decode())  # from bytes, json would guess other encodings
        require_depth(value, data)
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()  # half a pair is no text
    except (ValueError, RecursionError) as error:  # lists in lists, thousands deep
        raise DamagedError(f"{path} is not JSON ({error}). Run `logitbank verify`.") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is not a JSON object. Run `logitbank verify`.")
    return value


def require_depth(value: object, data: bytes) -> None:
    """Refuse the value of a JSON text that is nested too deeply, with a ValueError."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    level, depth = [value], 0
    while level := [
        inner
        for each in level
        if isinstance(each, dict | list)
        for inner in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def json_bytes(value: object) -> bytes:
    """Bank JSON, the same bytes for the same value."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def signed(document: dict[str, Any], holder: dict[str, Any]) -> bytes:
    """JSON in which `holder`, the document or an object in it, ends with the document's digest.

    The member `sha256` is the SHA-256 (hex) of the JSON without that member.
    """
    holder.pop(SELF_DIGEST, None)
    holder[SELF_DIGEST] = compute_digest(json_bytes(document)).sha256
    data = json_bytes(document)
    require_depth(document, data)  # a reader would refuse it
    return data
