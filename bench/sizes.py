"""How time and memory grow with sizes: checkpoints, prompts, vocabulary and length.

`python -m bench.sizes analysis BANK CHECKPOINTS QUARTERS` and `python -m bench.sizes extraction
SUITE BANK COUNT WORDS` measure one point, in a process of its own.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from bench.drawn import STEPS
from bench.figures import Figure
from bench.models import series
from bench.offline import large_bank
from bench.peak import peak_mb
from logitbank.store import Bank

CONSTANT = 1.3
"""Peak memory over that of a few checkpoints, at most."""
VOCAB, COUNT, WORDS = 50_304, 256, 30


def sizes(tmp: Path) -> Iterator[Figure]:
    yield from analysis(tmp)
    yield from extraction(tmp)


def analysis(tmp: Path, *, checkpoints: tuple[int, ...] = (20, 77, 154)) -> Iterator[Figure]:
    """Every fairness table, by checkpoints and by quarters of the 15,840 prompts.

    Peak memory by checkpoints, of every analysis, is `bench.growth`.
    """
    bank = large_bank(tmp)
    for number in checkpoints:
        found = _point("analysis", bank, number, 4)
        yield from _curve(f"fairness of {number} checkpoints × 15,840 prompts", *found)
    for quarters in (1, 2):
        number, prompts = checkpoints[-1], 3960 * quarters
        found = _point("analysis", bank, number, quarters)
        yield from _curve(f"fairness of {number} checkpoints × about {prompts:,} prompts", *found)


def extraction(
    tmp: Path, *, count: int = COUNT, checkpoints: tuple[int, ...] = (2, 8)
) -> Iterator[Figure]:
    """A whole run of the toy shape, every row kept: by one size after another."""
    peaks = []
    for number in checkpoints:
        seconds, peak = _run(tmp, number, count)
        peaks.append(peak)
        yield from _curve(f"toy, {number} checkpoints × {count} prompts", seconds, peak)
    yield _constant("extraction", checkpoints, peaks)
    first = checkpoints[0]
    for factor in (4, 8):
        found = _run(tmp, first, count * factor)
        yield from _curve(f"toy, {first} checkpoints × {count * factor} prompts", *found)
    for vocab in (VOCAB * 2, VOCAB * 4):
        found = _run(tmp, first, count, vocab=vocab)
        yield from _curve(f"toy, {first} checkpoints × {count} prompts, {vocab:,} outputs", *found)
    for words in (90, 400):
        found = _run(tmp, first, count, words=words)
        yield from _curve(f"toy, {first} checkpoints × {count} prompts of {words} words", *found)


def _run(
    tmp: Path, checkpoints: int, count: int, *, vocab: int = VOCAB, words: int = WORDS
) -> tuple[float, float]:
    suite = series(tmp, "toy", checkpoints, vocab=vocab)
    return _point("extraction", suite, tmp / f"{time.time_ns()}.zarr", count, words)


def _point(*arguments: object) -> tuple[float, float]:
    """Seconds, and MB at the peak of the largest process."""
    command = [sys.executable, "-m", "bench.sizes", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


def _curve(name: str, seconds: float, peak: float) -> Iterator[Figure]:
    yield Figure(f"growth: {name}", seconds, "s")
    yield Figure(f"growth: {name}, peak memory", peak, "MB")


def _constant(name: str, checkpoints: tuple[int, ...], peaks: list[float]) -> Figure:
    value = peaks[-1] / peaks[0]
    return Figure(
        f"growth: peak memory of {name} at {checkpoints[-1]} checkpoints over that at"
        f" {checkpoints[0]}",
        value,
        "×",
        f"≤ {CONSTANT} ×",
        value <= CONSTANT,
        detail=f"{peaks[-1]:.0f} MB over {peaks[0]:.0f} MB",
    )


def _peak() -> float:
    """MB at the peak of this process or of its largest child."""
    return max(peak_mb(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6)


def _analyse(path: str, checkpoints: int, quarters: int) -> None:
    from logitbank.analysis import batches, fairness_metric

    frames = batches(Bank.open(path), "winobias", steps=STEPS[:checkpoints])
    if quarters < 4:
        own = pl.col("sentence_id").hash(seed=0) % 4 < quarters
        frames = [frame.filter(own) for frame in frames]
    fairness_metric(frames).tables()


def _extract(suite: str, bank: str, count: int, words: int) -> None:
    from bench.workload import workload
    from logitbank.engine.extract import extract

    summary = extract(bank, suite=suite, prompts=workload(count, words=words))
    if not summary.complete:
        sys.exit("; ".join(failure.message for failure in summary.failed))


def main(kind: str, first: str, *rest: str) -> None:
    start = time.perf_counter()
    if kind == "analysis":
        _analyse(first, *map(int, rest))
    else:
        _extract(first, rest[0], *map(int, rest[1:]))
    print(json.dumps([time.perf_counter() - start, _peak()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
