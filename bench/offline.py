"""What an analyst waits for: fairness and the report of a large bank, `info`, `--help`."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.drawn import STEPS, drawn_bank, small_deposits
from bench.figures import Figure
from bench.work import taken

NAME = f"{len(STEPS)} checkpoints × 15,840 prompts"
DEPOSITS = 5_000


def fairness(tmp: Path, *, rounds: int = 5) -> Iterator[Figure]:
    """Seconds of a process that makes every table, and its peak memory."""
    bank = drawn_bank(tmp / "drawn.zarr", tmp)
    yield from _offline("fairness", f"every fairness table, {NAME}", bank, 2.2, 500, rounds)


def report(tmp: Path, *, rounds: int = 3) -> Iterator[Figure]:
    """The same bank's report, and the size of its page."""
    bank, page = drawn_bank(tmp / "drawn.zarr", tmp), tmp / "report.html"
    name = f"report, {NAME}"
    yield from _offline("report", name, bank, 8, 2000, rounds, str(page))
    size = page.stat().st_size / 1e6
    yield Figure(f"{name}: the page", size, "MB", "≤ 6 MB", size <= 6)


def info(tmp: Path, *, rounds: int = 5) -> Iterator[Figure]:
    bank = small_deposits(tmp, deposits=DEPOSITS, prompts=10)
    yield from _offline("info", f"info of {DEPOSITS:,} deposits", bank, 1, 250, rounds)


def _offline(
    work: str, name: str, bank: Path, most_s: float, most_mb: float, rounds: int, *rest: str
) -> Iterator[Figure]:
    seconds, peaks = taken(work, bank, *rest, rounds=rounds)
    took, peak = median(seconds), max(peaks)
    yield Figure(name, took, "s", f"≤ {most_s:g} s", took <= most_s, seconds)
    yield Figure(f"{name}: peak memory", peak, "MB", f"≤ {most_mb:g} MB", peak <= most_mb, peaks)


def command_help(_: Path, *, rounds: int = 9) -> Iterator[Figure]:
    """Seconds of `logitbank --help`, with Python's own start in the detail."""
    command = Path(sys.executable).with_name("logitbank")

    def wall(*arguments: str) -> float:
        start = time.perf_counter()
        subprocess.run(arguments, check=True, capture_output=True)
        return time.perf_counter() - start

    wall(str(command), "--help")
    seconds = [wall(str(command), "--help") for _ in range(rounds)]
    python = median(wall(sys.executable, "-c", "pass") for _ in range(rounds))
    took = median(seconds)
    yield Figure(
        *("`logitbank --help`", took, "s", "≤ 0.5 s", took <= 0.5, seconds),
        f"Python alone {python:.3f} s",
    )
