"""The bank's own speed: writing float16 rows of drawn logits, and reading them.

`python -m bench.store FOLDER` times writing, in a process of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from bench.figures import Figure
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.worker_process import worker_environment
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    Deposit,
    DepositSpec,
    Keep,
    Layout,
    OptionTokens,
    Query,
    QuerySet,
)
from logitbank.store.deposits.reduce import BlockReducer

VOCAB = 50_304
ROWS = 512
"""Rows of a block: 52 MB of float16."""


def rows(tmp: Path) -> Iterator[Figure]:
    yield _writing(tmp / "writing")
    deposit = _stored(tmp / "rows", blocks=5)
    for name, rounds, selection in (
        ("all of 2,560 rows", 21, {}),
        ("one token of 2,560 rows", 31, {"tokens": np.array([40_000])}),
    ):
        yield _ratios(
            f"{name}, checked, against zarrs, which checks nothing of a part", 0.8,
            lambda chosen=selection: deposit.logprobs(**chosen),
            _unchecked(deposit, **selection),
            rounds,
        )  # fmt: skip
    shutil.rmtree(tmp / "rows")


def _logits(seed: int, rows: int = ROWS) -> np.ndarray:
    """(rows, v) float32: frequencies as a language model's, and what each context adds."""
    rng = np.random.default_rng(seed)
    frequency = -np.log(np.arange(1, VOCAB + 1, dtype=np.float32))
    return frequency + rng.normal(0, 1.5, (rows, VOCAB)).astype(np.float32)


def _block(layout: Layout, block: int, seed: int) -> BlockData:
    options = OptionTokens.build([[1, 2, 3]] * layout.queries)
    reducer = BlockReducer(layout, block, options=options, vocab_entries=VOCAB)
    for i, row in enumerate(_logits(seed, len(layout.rows(block)))):
        reducer.put(i, row)
    return reducer.finish()


def _empty(path: Path, *, blocks: int) -> tuple[Bank, str]:
    bank = Bank.create(path)
    queries = QuerySet("0" * 64, tuple(Query((i,), 0) for i in range(ROWS * blocks)))
    return bank, bank.add_query_set(queries)


def _spec(name: str, step: int, *, blocks: int) -> DepositSpec:
    layout = Layout(ROWS * blocks, VOCAB, "float16", Keep("full"), ROWS)
    made = {"weights": f"{step:064x}", "tokenizer": "0" * 64}
    return DepositSpec(CheckpointId("m", step=step), name, layout, VOCAB, made)


def _stored(path: Path, *, blocks: int) -> Deposit:
    """One sealed deposit of full rows."""
    bank, name = _empty(path, blocks=blocks)
    with bank.begin(_spec(name, 0, blocks=blocks)) as writer:
        for block in range(blocks):
            writer.write(block, _block(writer.layout, block, seed=block))
        writer.seal()
    return bank.deposits()[0]


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _ratios(
    name: str, target: float, ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> Figure:
    """Median of their time over ours, in turns."""
    found, times = [], []
    for _ in range(rounds):
        times.append((_seconds(theirs), _seconds(ours)))
        found.append(times[-1][0] / times[-1][1])
    value = median(found)
    detail = f"{median(t for t, _ in times):.3g} s against {median(o for _, o in times):.3g} s"
    return Figure(name, value, "×", f"≥ {target} ×", value >= target, found, detail)


def _writing(path: Path) -> Figure:
    """Timed in a process with a worker's environment."""
    settings = EngineSettings("vllm")
    done = subprocess.run(
        [sys.executable, "-m", "bench.store", str(path)],
        env=os.environ | worker_environment(settings),
        check=True,
        stdout=subprocess.PIPE,
    )
    times = json.loads(done.stdout)
    found = [theirs / ours for theirs, ours in times]
    name = (
        "writing 412 MB of float16 rows, committed and sealed, by two threads, against `np.save`"
        " with fsync"
    )
    value = median(found)
    detail = f"{median(t for t, _ in times):.2f} s against {median(o for _, o in times):.2f} s"
    return Figure(name, value, "×", "≥ 0.4 ×", value >= 0.4, found, detail)


def main(folder: str) -> None:
    """Print seconds of `np.save` and of the bank, in turns.

    What one turn wrote is deleted before the next: pages of the cache that were used before are
    much faster than new ones, for both.
    """
    path = Path(folder)
    bank, name = _empty(path, blocks=8)
    blocks = [_block(_spec(name, 0, blocks=8).layout, block, seed=block) for block in range(4)]
    moved = []
    for block in range(8):
        own = blocks[block % 4]
        query = (pl.col("query") % ROWS + block * ROWS).cast(pl.Int32)
        moved.append(BlockData(own.logprobs, own.scores.with_columns(query)))

    def ours(step: int) -> None:
        with bank.begin(_spec(name, step, blocks=8)) as writer, ThreadPoolExecutor(2) as pool:
            assert all(pool.map(writer.write, range(8), moved))
            writer.seal()

    def theirs() -> None:
        for block, data in enumerate(moved):
            with (path / f"{block}.npy").open("wb") as file:
                np.save(file, data.logprobs)
                file.flush()
                os.fsync(file.fileno())

    times = []
    for step in range(10):
        times.append((_seconds(theirs), _seconds(partial(ours, step))))
        for file in path.glob("*.npy"):
            file.unlink()
        shutil.rmtree(path / "m")
    shutil.rmtree(path)
    print(json.dumps(times[1:]))


def _unchecked(deposit: Deposit, tokens: Any = None) -> Callable[[], np.ndarray]:
    import zarr

    def read() -> np.ndarray:
        with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
            array = zarr.open_array(deposit.path / "logprobs", mode="r")
        values = np.asarray(array[:] if tokens is None else array.oindex[slice(None), tokens])
        return values.astype(np.float32)

    return read


if __name__ == "__main__":
    main(*sys.argv[1:])
