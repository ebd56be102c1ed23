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

from bench.figures import Figure
from bench.models import DATA, series
from bench.peak import peak_mb
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.prepare import prepare
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.run import record_prompts
from logitbank.store import Bank, BlockData, CheckpointId, DepositSpec, Keep, Layout, OptionTokens
from logitbank.store.format.schema import SCORES_SCHEMA

STEPS = [0, *(2**k for k in range(10)), *range(1000, 144_000, 1000)]
"""Pythia's 154."""


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
    path = tmp / f"pythia-{len(STEPS)}.zarr"
    if path.exists():
        return path
    from logitbank.engine.backends.protocol import EngineSettings
    from logitbank.engine.suites.suites import resolve_suite

    checkpoint = series(tmp, "toy", 1) / "step0"
    suite = resolve_suite(str(checkpoint.parent))
    extraction = Extraction(
        suite, (prompt_set("winobias", data=DATA),), EngineSettings("vllm"), keep=Keep("options")
    )
    prepared = prepare(None, extraction, checkpoint)
    bank = Bank.create(path.with_suffix(".part"))
    record_prompts(bank, prepared)
    (plan,) = prepared.plan.deposits
    named = bank.option_tokens(plan.query_set)
    for step in STEPS:
        spec = DepositSpec(
            CheckpointId("pythia", step=step), plan.query_set, plan.layout,
            prepared.tokenizer.entries, {"engine": "drawn"},
        )  # fmt: skip
        with bank.begin(spec) as writer:
            for block in range(plan.layout.blocks):
                writer.write(block, _drawn(named, plan.layout, block, step))
            writer.seal()
    bank.path.rename(path)
    return path


def _drawn(named: OptionTokens, layout: Layout, block: int, step: int) -> BlockData:
    """Options whose logits drift with the step, and a top entry for each query."""
    rows, rng = layout.rows(block), np.random.default_rng((step, block))
    options = [named.of(row) for row in rows]
    counts = [len(tokens) for tokens in options]
    listed, drift = sum(counts), np.log10(step + 1) / 5.2
    frames = []
    for kind, tokens, number in (
        ("option", np.concatenate(options), counts),
        ("top", np.full(len(rows), 7), [1] * len(rows)),
    ):
        n = listed if kind == "option" else len(rows)
        frames.append(
            pl.DataFrame(
                {
                    "query": np.repeat(np.arange(rows.start, rows.stop), number),
                    "token": tokens,
                    "kind": [kind] * n,
                    "logit": rng.normal(2 * drift * (tokens % 3), 1, n),
                    "logsumexp": np.full(n, 12.0),
                    "rank": np.exp(rng.normal(7 * (1 - drift) + 1, 0.6, n)).astype(int) + 1,
                    "ties": 0,
                    "padding_above": 0,
                    "padding_ties": 0,
                    "exact": True,
                }
            ).select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
        )
    return BlockData(None, pl.concat(frames))


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
