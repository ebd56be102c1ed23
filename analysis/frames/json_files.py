"""JSON files of others: read whole, and an object."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logitbank.errors import UsageError


def json_object(path: Path, kind: str) -> Mapping[str, Any]:
    """The content of a JSON file that holds one object; NaN and Infinity, which Python writes, too.

    Raises
    ------
    UsageError
        It is not there, no JSON, or no object.
    """
    if not path.is_file():
        raise UsageError(f"there is no {kind} {path}; check the path")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors are ValueErrors
        raise UsageError(f"{path} is no JSON, as a {kind} is: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is no {kind}: its JSON is no object")
    return content
