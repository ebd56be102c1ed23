"""Reader of the logs of runs, which the library writes and verifies."""

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
        Another line was changed.
    """
    data = path.read_bytes()
    if problem := run_logs.damage(data):
        raise DamagedError(f"{path} is damaged: {problem}")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]
