"""What a user waits for without a model: `--help`, analyses, reports, `info`, a finished run.

`python -m bench.offline WHAT ARGUMENT …` does one piece of work in a process that imports nothing
but the product, and prints its peak memory in MB.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from unittest.mock import patch

from bench.figures import Figure

PROMPTS = 50


def fairness(tmp: Path, *, rounds: int = 5) -> Iterator[Figure]:
    """Seconds of a process that makes every table, and its peak memory."""
    from bench.drawn import drawn_bank

    bank = drawn_bank(tmp / "drawn.zarr", tmp)
    name = "every fairness table, 154 checkpoints × 15,840 prompts"
    yield from _measured("fairness", name, [bank], most_s=2.2, most_mb=500, rounds=rounds)


def report(tmp: Path, *, rounds: int = 3) -> Iterator[Figure]:
    """The same bank's report, and the size of its page."""
    from bench.drawn import drawn_bank

    bank, page = drawn_bank(tmp / "drawn.zarr", tmp), tmp / "report.html"
    name = "report, 154 checkpoints × 15,840 prompts"
    yield from _measured("report", name, [bank, page], most_s=8, most_mb=2000, rounds=rounds)
    size = page.stat().st_size / 1e6
    yield Figure(f"{name}: the page", size, "MB", "≤ 6 MB", size <= 6)


def info(tmp: Path, *, rounds: int = 5) -> Iterator[Figure]:
    from bench.drawn import small_deposits

    bank = small_deposits(tmp, deposits=5_000, prompts=10)
    yield from _measured("info", "info of 5,000 deposits", [bank], 1, 250, rounds)


def _measured(
    work: str, name: str, arguments: list[Path], most_s: float, most_mb: float, rounds: int
) -> Iterator[Figure]:
    """Seconds from the start of Python to its end, and the peak memory in MB."""
    command = [sys.executable, "-m", "bench.offline", work, *map(str, arguments)]
    seconds, peaks = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        seconds.append(time.perf_counter() - start)
        peaks.append(float(done.stdout))
    took, peak = median(seconds), max(peaks)
    yield Figure(name, took, "s", f"≤ {most_s:g} s", took <= most_s, seconds)
    yield Figure(f"{name}: peak memory", peak, "MB", f"≤ {most_mb:g} MB", peak <= most_mb, peaks)


def _seconds(*command: object) -> float:
    start = time.perf_counter()
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    return time.perf_counter() - start


def command_help(_: Path, *, rounds: int = 9) -> Iterator[Figure]:
    """Seconds of `logitbank --help`, with Python's own start in the detail."""
    command = Path(sys.executable).with_name("logitbank")
    _, *seconds = (_seconds(command, "--help") for _ in range(rounds + 1))
    python = median(_seconds(sys.executable, "-c", "pass") for _ in range(rounds))
    took, detail = median(seconds), f"Python alone {python:.3f} s"
    yield Figure("`logitbank --help`", took, "s", "≤ 0.5 s", took <= 0.5, seconds, detail)


def nothing_to_do(tmp: Path, *, rounds: int = 5) -> Iterator[Figure]:
    """Seconds of the command, imports included, if all results are in the bank."""
    from bench.models import series

    prompts = tmp / "nurses.jsonl"
    rows = [
        {"id": f"p{n}", "text": f"Nurse {n} said that", "options": [" he", " she"]}
        for n in range(PROMPTS)
    ]
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = [
        *(Path(sys.executable).with_name("logitbank"), "extract", tmp / "tiny.zarr"),
        *("--suite", series(tmp, "tiny", 154), "--prompts", prompts),
        *("--keep", "options", "--engine", "transformers"),
    ]
    first, *seconds = (_seconds(*command) for _ in range(rounds + 1))
    took, detail = median(seconds), f"all of them to do: {first:.0f} s"
    name = "extract of 154 checkpoints, nothing to do"
    yield Figure(name, took, "s", "≤ 1 s", took <= 1, seconds, detail)


def one_step_over_http(tmp: Path) -> Iterator[Figure]:
    """Requests to a server on this machine and bytes from it, into an empty cache."""
    from bench.drawn import small_deposits
    from logitbank.store import Bank
    from logitbank.store.share.push import push
    from tests.support.file_server import FileServer

    bank = small_deposits(tmp, deposits=1_000, prompts=PROMPTS, keep="full")
    push(bank, tmp / "www" / "bank")
    cache = patch.dict(os.environ, {"LOGITBANK_CACHE": str(tmp / f"cache-{time.time_ns()}")})
    with cache, FileServer(tmp / "www") as server:
        start = time.perf_counter()
        rows = Bank.open(f"{server.url}/bank", steps=3).scan("nurses", steps=3).collect()
        detail = f"{time.perf_counter() - start:.1f} s, on this machine"
        answers = server.log()
    assert len(rows) == 2 * PROMPTS
    name, requests = "one step of 1,000 deposits at a URL, nothing in the cache", len(answers)
    megabytes = sum(answer.bytes for answer in answers) / 1e6
    yield Figure(f"{name}: requests", requests, "", "≤ 10", requests <= 10, [], detail)
    yield Figure(f"{name}: sent", megabytes, "MB", "≤ 2 MB", megabytes <= 2)


def _fairness(bank: str) -> None:
    """What `logitbank analyze fairness` does before it draws."""
    from logitbank.analysis import fairness_metric
    from logitbank.analysis.frames.reader import Scores
    from logitbank.store import Bank

    tables = fairness_metric(Scores([Bank.open(bank)], ("winobias",))).tables()
    assert all(len(table) for name, table in tables.items() if name != "comparison")


def _report(bank: str, page: str) -> None:
    from logitbank.analysis.report.report import report

    report(Path(bank), Path(page))


def _info(bank: str) -> None:
    from logitbank.store import Bank

    assert len(Bank.open(bank).info())


WORK: dict[str, Callable[..., None]] = {"fairness": _fairness, "report": _report, "info": _info}


def _peak_mb() -> float:
    """The kernel's high-water mark of this process; `getrusage` includes its parent's size."""
    status = Path("/proc/self/status").read_text()
    (kib,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return kib * 1024 / 1e6


if __name__ == "__main__":
    WORK[sys.argv[1]](*sys.argv[2:])
    print(_peak_mb())
