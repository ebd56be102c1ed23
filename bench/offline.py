"""What an analyst waits for: fairness of a large bank, fluctuation of released scores, `--help`.

`python -m bench.offline BANK` times every fairness table in a fresh process.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from bench.drawn import STEPS, drawn_bank
from bench.figures import Figure
from bench.peak import peak_mb
from logitbank.store import Bank


def fairness_tables(tmp: Path, *, rounds: int = 5) -> list[Figure]:
    """Seconds from opening the bank to every table, and the process's peak memory."""
    bank = large_bank(tmp)
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-m", "bench.offline", str(bank)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for _ in range(rounds)
    ]
    seconds, peaks = [f["seconds"] for f in found], [f["peak_gb"] for f in found]
    name = f"every fairness table, {len(STEPS)} checkpoints × 15,840 prompts"
    return [
        Figure(name, median(seconds), "s", "≤ 5 s", median(seconds) <= 5, seconds),
        Figure(f"{name}: peak memory", max(peaks), "GB", "< 2 GB", max(peaks) < 2, peaks),
    ]


def fluctuation_tables(*, rounds: int = 9) -> list[Figure]:
    """Seconds from a published table in memory to every fluctuation table, nothing drawn."""
    from logitbank.analysis import fluctuation_metric
    from logitbank.analysis.families.fluctuation.plateaus import PUBLISHED

    found = []
    for name, table in (
        ("62 checkpoints × 923 professions × 2 verbs", published_scores(PUBLISHED[0], runs=1)),
        (
            "5 runs × 29 checkpoints × 923 professions",
            published_scores(PUBLISHED[1], runs=5, verbs=("is",)),
        ),
    ):
        seconds = []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            tables = fluctuation_metric(table).tables()
            seconds.append(time.perf_counter() - start)
        first, *warm = seconds
        assert len(tables["professions"]) % 923 == 0
        value = median(warm)
        found.append(
            Figure(
                f"every fluctuation table, {name}",
                value,
                "s",
                "≤ 0.2 s",
                value <= 0.2,
                warm,
                f"{len(table):,} rows; the first call {first:.2f} s",
            )
        )
    return found


def published_scores(
    steps: Sequence[int], *, runs: int, verbs: Sequence[str] = ("is", "works as")
) -> pl.DataFrame:
    """Drawn scores of 923 professions and the priors, in the published long format."""
    jobs = [*(f"a profession {i}" for i in range(923)), "a [MASK]"]
    axes = {
        "seed": pl.Series(range(runs)),
        "checkpoint": pl.Series(steps),
        "verb": pl.Series(verbs),
        "occupation": pl.Series(jobs),
        "pronoun": pl.Series(["he", "she"]),
    }
    table = pl.DataFrame()
    for name, values in axes.items():
        axis = values.to_frame(name)
        table = axis if table.is_empty() else table.join(axis, how="cross")
    score = np.random.default_rng(0).uniform(0.01, 0.4, len(table))
    return table.select(
        *("pronoun", pl.Series("score", score), "occupation"),
        template=pl.format("[MASK] {} {}.", "verb", "occupation"),
        sentence=pl.format("{} {} {}.", "pronoun", "verb", "occupation"),
        model=pl.lit("drawn"),
        seed="seed",
        checkpoint="checkpoint",
    )


def command_help(*, rounds: int = 9) -> Figure:
    """Seconds of `logitbank --help`, with Python's own start in the detail."""
    command = Path(sys.executable).with_name("logitbank")

    def wall(*arguments: str) -> float:
        start = time.perf_counter()
        subprocess.run(arguments, check=True, capture_output=True)
        return time.perf_counter() - start

    wall(str(command), "--help")
    seconds = [wall(str(command), "--help") for _ in range(rounds)]
    python = median(wall(sys.executable, "-c", "pass") for _ in range(rounds))
    return Figure(
        "`logitbank --help`",
        median(seconds),
        "s",
        "≤ 0.5 s",
        median(seconds) <= 0.5,
        seconds,
        f"Python alone {python:.3f} s",
    )


def large_bank(tmp: Path) -> Path:
    """WinoBias in five orders with drawn logits, at keep level options, made once."""
    return drawn_bank(tmp / f"pythia-{len(STEPS)}.zarr", tmp, ("winobias",))


def main(bank: str) -> None:
    """What `logitbank analyze fairness` does before it draws."""
    start = time.perf_counter()
    from logitbank.analysis import fairness_metric
    from logitbank.analysis.families.fairness.cube import CODED
    from logitbank.analysis.frames.sources import bank_frames

    frames = bank_frames([Bank.open(bank)], "winobias", None, coded=CODED)
    tables = fairness_metric(frames).tables()
    seconds = time.perf_counter() - start
    assert all(len(table) for name, table in tables.items() if name != "comparison")
    print(json.dumps({"seconds": seconds, "peak_gb": peak_mb() / 1e3}))


if __name__ == "__main__":
    main(*sys.argv[1:])
