"""Logs of runs, read: the library writes them and looks for damage, and people read the lines."""

import json
from pathlib import Path

from logitbank.errors import DamagedError
from logitbank.store.care import run_logs
from logitbank.store.format.schema import Json


def run_lines(path: Path) -> list[dict[str, Json]]:
    """The lines of a log, without a last one that was cut.

    Raises
    ------
    DamagedError
        Another line is not what was written there.
    """
    data = path.read_bytes()
    if problem := run_logs.damage(data):
        raise DamagedError(f"{path} is not what was written there: {problem}")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]
