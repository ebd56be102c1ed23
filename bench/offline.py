"""What an analyst waits for: fairness of a large bank, fluctuation of released scores, `--help`."""

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
from bench.work import taken


def fairness_tables(tmp: Path, *, rounds: int = 5) -> list[Figure]:
    """Seconds of a process that makes every table, and its peak memory."""
    seconds, peaks = taken("fairness", large_bank(tmp), rounds=rounds)
    name = f"every fairness table, {len(STEPS)} checkpoints × 15,840 prompts"
    took, peak = median(seconds), max(peaks)
    return [
        Figure(name, took, "s", "≤ 1.7 s", took <= 1.7, seconds),
        Figure(f"{name}: peak memory", peak, "MB", "≤ 500 MB", peak <= 500, peaks),
    ]


def fluctuation_tables(*, rounds: int = 9) -> list[Figure]:
    """Seconds from a published table in memory to every fluctuation table, nothing drawn."""
    from logitbank.analysis import fluctuation_metric
    from logitbank.analysis.families.fluctuation.plateaus import PUBLISHED

    found = []
    for name, target, table in (
        (
            "62 checkpoints × 923 professions × 2 verbs",
            0.045,
            published_scores(PUBLISHED[0], runs=1),
        ),
        (
            "5 runs × 29 checkpoints × 923 professions",
            0.2,
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
                f"≤ {target:g} s",
                value <= target,
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
