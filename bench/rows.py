"""Arrays of rows, written and read by logitbank, by Zarr's own pipeline, and by zarrs.

Every writer compresses, computes the SHA-256 of each shard and makes it durable. Two threads write.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

import numpy as np

from bench.figures import Figure
from logitbank.store.deposits.rows import ShardedArray, write_shard
from logitbank.store.files.objects import Digest, fsync_digest
from logitbank.store.format.grid import Grid
from logitbank.store.format.numbers import normalise_rows
from logitbank.store.format.zarrays import AXES, rows_metadata

GRID = Grid(4096, 50_304, "float16", 512)
READ_ROWS = 2560
PIPELINES = {
    "Zarr": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}
Write = Callable[[Path, int, np.ndarray], Digest]


def rows(tmp: Path, *, rounds: int = 5, grid: Grid = GRID) -> Iterator[Figure]:
    """Seconds of writing, and of reading all and one token; each is compared with logitbank's."""
    import zarr
    import zarrs  # noqa: F401

    cores = len(os.sched_getaffinity(0))
    zarr.config.set({"async.concurrency": cores, "threading.max_workers": cores})
    rng, size = np.random.default_rng(0), grid.block_rows
    logits = (rng.standard_normal((size, grid.columns), np.float32) * 3 for _ in range(grid.blocks))
    blocks = [normalise_rows(block).astype(np.float16) for block in logits]
    folder, metadata = tmp / "rows", rows_metadata(grid, AXES["logprobs"])
    writers: dict[str, Write] = {"logitbank": partial(_write, grid)}
    writers |= {name: partial(_write_zarr, pipeline) for name, pipeline in PIPELINES.items()}
    written: dict[str, list[float]] = {name: [] for name in writers}
    for _ in range(rounds):
        for name, write in reversed(writers.items()):  # logitbank last: its files are read below
            rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "zarr.json").write_bytes(metadata)
            start = time.perf_counter()
            with ThreadPoolExecutor(2) as pool:
                digests = list(pool.map(partial(write, folder), range(grid.blocks), blocks))
            written[name].append(time.perf_counter() - start)
    count = min(READ_ROWS, grid.rows)
    ours = ShardedArray.open(folder, metadata, grid, dict(enumerate(digests)))
    theirs = _open(PIPELINES["Zarr"], folder, "r")
    all_rows, one = np.arange(count), np.array([grid.columns // 2])
    megabytes = sum(block.nbytes for block in blocks) / 1e6
    yield from _figures(f"writing {megabytes:.0f} MB of float16 rows by two threads", written)
    for what, columns in (("all", None), ("one token", one)):
        key = slice(None) if columns is None else slice(int(one[0]), int(one[0]) + 1)
        readers: dict[str, Callable[[], np.ndarray]] = {
            "logitbank": partial(ours.read, all_rows, columns, dtype="float16"),
            "Zarr": partial(theirs.__getitem__, (slice(count), key)),
        }
        found = {name: _timed(read) for name, read in readers.items()}  # fills the page cache
        assert np.array_equal(found["logitbank"][1], found["Zarr"][1])
        read = {name: [_timed(each)[0] for _ in range(rounds)] for name, each in readers.items()}
        yield from _figures(f"{what} of {count:,} rows", read)


def _figures(name: str, seconds: dict[str, list[float]]) -> Iterator[Figure]:
    ours = median(seconds["logitbank"])
    for who, each in seconds.items():
        ratio = "" if who == "logitbank" else f"{median(each) / ours:.2f} × logitbank's"
        yield Figure(f"{name}: {who}", median(each), "s", "", None, each, ratio)


def _timed(read: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    values = read()
    return time.perf_counter() - start, values


def _write(grid: Grid, folder: Path, block: int, values: np.ndarray) -> Digest:
    file = folder / f"c/{block}/0"
    file.parent.mkdir(parents=True)
    return write_shard(file, grid, values)


def _write_zarr(pipeline: str, folder: Path, block: int, values: np.ndarray) -> Digest:
    start = block * len(values)
    _open(pipeline, folder, "r+")[start : start + len(values)] = values
    return fsync_digest(folder / f"c/{block}/0")


def _open(pipeline: str, folder: Path, mode: str) -> Any:
    import zarr

    with zarr.config.set({"codec_pipeline.path": pipeline}):
        return zarr.open_array(folder, mode=mode)
