"""One piece of offline work, timed as a process of its own that imports nothing but the product.

`python -m bench.work WHAT ARGUMENT …` does it, and prints its peak memory in MB.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Taken(NamedTuple):
    """Values of each round."""

    seconds: list[float]
    """From the start of Python to its end, imports included."""
    peaks: list[float]
    """MB."""


def taken(work: str, *arguments: str | Path, rounds: int) -> Taken:
    """Run a piece of work `rounds` times."""
    command = [sys.executable, "-m", "bench.work", work, *map(str, arguments)]
    seconds, peaks = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        seconds.append(time.perf_counter() - start)
        peaks.append(float(done.stdout))
    return Taken(seconds, peaks)


def _fairness(bank: str) -> None:
    """What `logitbank analyze fairness` does before it draws."""
    from logitbank.analysis import fairness_metric
    from logitbank.analysis.frames.batches import batches
    from logitbank.analysis.frames.score_arrays import CODED
    from logitbank.store import Bank

    frames = batches([Bank.open(bank)], "winobias", coded=CODED)
    tables = fairness_metric(frames).tables()
    assert all(len(table) for name, table in tables.items() if name != "comparison")


def _report(bank: str, page: str) -> None:
    from logitbank.analysis.report.report import report

    report(Path(bank), Path(page))


def _info(bank: str) -> None:
    from logitbank.store import Bank

    assert len(Bank.open(bank).info())


WORK: dict[str, Callable[..., None]] = {"fairness": _fairness, "report": _report, "info": _info}


def _peak_mb() -> float:
    """By the kernel's mark of this process: `getrusage` begins at its parent's size."""
    status = Path("/proc/self/status").read_text()
    (kib,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return kib * 1024 / 1e6


if __name__ == "__main__":
    WORK[sys.argv[1]](*sys.argv[2:])
    print(_peak_mb())
