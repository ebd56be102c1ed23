"""Prompt files of a few rows."""

import json
from pathlib import Path


def write_rows(path: Path, *rows: object) -> Path:
    """A JSON Lines file of these rows."""
    path.write_text("\n".join(map(json.dumps, rows)))
    return path
