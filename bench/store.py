"""The bank's own speed: writing, scanning, ranking, one token through training, verify; codecs."""

import hashlib
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
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bench.figures import Figure
from bench.offline import large_bank
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.worker_process import worker_environment
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    OptionTokens,
    Query,
    QuerySet,
    verify,
)
from logitbank.store.change.rescore import option_scores
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.grid import Grid

VOCAB = 50_304
ROWS = 512
"""Of a block: 52 MB of float16."""
CHECKPOINT = 15_840
"""Queries of WinoBias in five orders."""


def store_figures(tmp: Path) -> Iterator[Figure]:
    bank = stored_bank(tmp / "store", checkpoints=8, blocks=5)
    yield _writing(tmp / "writing")
    yield _scanning(tmp)
    yield _ranking(bank)
    yield _trajectory(bank)
    yield _verifying(bank)
    yield checkpoint_size(bank)
    shutil.rmtree(bank.path)


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


def stored_bank(path: Path, *, checkpoints: int, blocks: int) -> Bank:
    """8 checkpoints of 5 blocks are 2.06 GB of float16."""
    bank, name = _empty(path, blocks=blocks)
    for step in range(checkpoints):
        with bank.begin(_spec(name, step, blocks=blocks)) as writer:
            for block in writer.missing():
                writer.write(block, _block(writer.layout, block, seed=8 * step + block))
            writer.seal()
    return bank


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratios(
    name: str, target: float, ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> Figure:
    """Median of their time over ours, in turns."""
    found, times = [], []
    for _ in range(rounds):
        times.append((seconds(theirs), seconds(ours)))
        found.append(times[-1][0] / times[-1][1])
    value = median(found)
    detail = f"{median(t for t, _ in times):.3g} s against {median(o for _, o in times):.3g} s"
    return Figure(name, value, "×", f"≥ {target} ×", value >= target, found, detail)


def _writing(path: Path) -> Figure:
    """In a process with a worker's environment, where extraction writes."""
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
        times.append((seconds(theirs), seconds(partial(ours, step))))
        for file in path.glob("*.npy"):
            file.unlink()
        shutil.rmtree(path / "m")
    shutil.rmtree(path)
    print(json.dumps(times[1:]))


def _scanning(tmp: Path) -> Figure:
    path = large_bank(tmp)
    columns = ["step", "prompt_id", "option", "logprob", "rank"]
    times = [
        seconds(lambda: Bank.open(path).scan("winobias").select(columns).collect())
        for _ in range(7)
    ]
    value = median(times)
    name = "a scan of every option of 154 × 15,840 × 3"
    return Figure(name, value, "s", "< 1 s", value < 1, times, "five columns, collected")


def _ranking(bank: Bank) -> Figure:
    deposits = bank.deposits()
    options = OptionTokens.build([[40_000]] * deposits[0].layout.queries)

    def ours() -> None:
        for deposit in deposits:
            option_scores(deposit, options)

    def theirs() -> None:
        for deposit in deposits:
            for block in range(deposit.layout.blocks):
                deposit.stored_logprobs(list(deposit.layout.rows(block)))

    name = "the rank of a token that nobody listed, over 2 GB, against decompressing them"
    return ratios(name, 0.6, ours, theirs, rounds=3)


def _trajectory(bank: Bank) -> Figure:
    deposits = bank.deposits()
    return ratios(
        "one token through 8 checkpoints × 2,560 prompts, against reading the full rows", 5,
        lambda: [d.logprobs(tokens=[40_000]) for d in deposits],
        lambda: [d.logprobs() for d in deposits],
        rounds=5,
    )  # fmt: skip


def _verifying(bank: Bank) -> Figure:
    files = [p for p in bank.path.rglob("*") if p.is_file()]

    def theirs() -> None:
        for path in files:
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")

    name = "verify, against SHA-256 of the same files alone"
    return ratios(name, 0.9, lambda: verify(bank), theirs, rounds=5)


def checkpoint_size(bank: Bank) -> Figure:
    """Objects and bytes of one checkpoint, by those of the bank's first deposit, a sealed one."""
    deposit = bank.deposits()[0]
    sizes = {
        path.relative_to(deposit.path).as_posix(): path.stat().st_size
        for path in deposit.path.rglob("*")
        if path.is_file()
    }
    shards = sum(size for path, size in sizes.items() if path.startswith("logprobs/c/"))
    others = sum(not path.startswith("logprobs/c/") for path in sizes)
    own = deposit.layout
    whole = Layout.plan(queries=CHECKPOINT, vocab=own.vocab, dtype=own.dtype, keep=own.keep)
    ratio = own.queries * own.vocab * np.dtype(own.dtype).itemsize / shards
    gigabytes = sum(sizes.values()) * whole.queries / own.queries / 1e9
    return Figure(
        f"objects of a checkpoint, {CHECKPOINT:,} × {own.vocab:,} full {own.dtype}, besides shards",
        others,
        "objects",
        "≤ 8",
        others <= 8,
        detail=(
            f"and {whole.blocks} shards; {gigabytes:.2f} GB, {ratio:.2f} times smaller, by a"
            f" deposit of {own.queries:,} rows"
        ),
    )


class _Candidate(NamedTuple):
    name: str
    compressors: list[Any]
    inner: tuple[int, int]
    pipeline: str


def codec_figures(tmp: Path) -> Iterator[Figure]:
    """Two blocks of 512 × 50,304 float16 log-probabilities, written and read by each candidate."""
    values = np.concatenate(
        [_block(_spec("q", 0, blocks=1).layout, 0, seed).logprobs for seed in (0, 1)]  # type: ignore[misc]
    )
    for candidate in _candidates():
        found = [_try(tmp / f"codec{turn}", candidate, values) for turn in range(3)]
        write, read, ratio, token_ms, row_ms = (median(c) for c in zip(*found, strict=True))
        yield Figure(
            f"codec {candidate.name}",
            write,
            "GB/s written",
            rounds=[f[0] for f in found],
            detail=(
                f"read {read:.2f} GB/s, {ratio:.2f} times smaller, one token of 1,024 rows "
                f"{token_ms:.1f} ms, one row {row_ms:.1f} ms"
            ),
        )


def _candidates() -> Iterator[_Candidate]:
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    default = Grid(1024, VOCAB, "float16", ROWS).chunk_shape
    fast, own = "zarrs", "zarr"
    zstd = [ZstdCodec(level=1, checksum=True)]
    lz4 = [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=2)]
    yield _Candidate("blosc lz4 5 bitshuffle (the bank's), zarrs", lz4, default, fast)
    yield _Candidate("blosc lz4 5 bitshuffle, Zarr's own pipeline", lz4, default, own)
    yield _Candidate("zstd 1, zarrs", zstd, default, fast)
    yield _Candidate("zstd 1, Zarr's own pipeline", zstd, default, own)
    yield _Candidate("none, zarrs", [], default, fast)
    yield _Candidate("zstd 3, zarrs", [ZstdCodec(level=3, checksum=True)], default, fast)
    yield _Candidate("zstd 9, zarrs", [ZstdCodec(level=9, checksum=True)], default, fast)
    yield _Candidate("gzip 1, zarrs", [GzipCodec(level=1)], default, fast)
    for inner in ("lz4", "zstd"):
        for shuffle in ("shuffle", "bitshuffle"):
            codec = BloscCodec(cname=inner, clevel=1, shuffle=shuffle, typesize=2)
            yield _Candidate(f"blosc {inner} 1 {shuffle}, zarrs", [codec], default, fast)
    for shape in ((32, default[1]), (512, default[1]), (128, VOCAB // 3), (128, VOCAB)):
        name = f"blosc lz4 5 bitshuffle, inner chunk {shape[0]} × {shape[1]:,}, zarrs"
        yield _Candidate(name, lz4, shape, fast)


def _try(path: Path, candidate: _Candidate, values: np.ndarray) -> tuple[float, ...]:
    """GB/s written and read, how many times smaller, and ms of one token and of one row."""
    import zarr

    pipelines = {
        "zarrs": "zarrs.ZarrsCodecPipeline",
        "zarr": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    }
    width = candidate.inner[1]
    shard = (ROWS, -(-VOCAB // width) * width)
    with zarr.config.set({"codec_pipeline.path": pipelines[candidate.pipeline]}):
        array = zarr.create_array(
            str(path),
            shape=values.shape,
            dtype="float16",
            chunks=candidate.inner,
            shards=shard,
            compressors=candidate.compressors,
            fill_value=float("nan"),
            overwrite=True,
        )
        writing = seconds(lambda: array.__setitem__(..., values))
        reading = seconds(lambda: array[:])
        token = median(seconds(lambda: array[:, 40_000]) for _ in range(5))
        row = median(seconds(lambda: array[700]) for _ in range(5))
        assert np.array_equal(array[:], values)
    stored = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    shutil.rmtree(path)
    gb = values.nbytes / 1e9
    return gb / writing, gb / reading, values.nbytes / stored, 1e3 * token, 1e3 * row


if __name__ == "__main__":
    main(*sys.argv[1:])
