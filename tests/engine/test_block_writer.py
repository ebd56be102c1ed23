"""One thread writes blocks while another scores; nothing is lost, reordered or hidden."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

from logitbank.engine.workers.blocks.writer import BlockWriter, RowBuffers
from logitbank.errors import DiskSpaceError, EngineError
from logitbank.store import BlockData, Keep
from logitbank.store.deposits.rows import write_shard
from logitbank.store.format.grid import Grid
from logitbank.store.format.zarrays import rows_metadata
from tests.support import small_banks


class Recorder:
    """Stands in for a DepositWriter: keeps what it is given, or fails from one block on."""

    def __init__(self, *, fails_at: int | None = None, there: tuple[int, ...] = ()) -> None:
        self.written: list[int] = []
        self.threads: set[int] = set()
        self._fails_at, self._there = fails_at, there

    def write(self, block: int, data: BlockData) -> bool:
        if block == self._fails_at:
            raise DiskSpaceError(f"block {block} does not fit")
        if block in self._there:
            return False
        self.written.append(block)
        self.threads.add(threading.get_ident())
        return True


def finished(block: int) -> Callable[[], BlockData]:
    return lambda: data(block)


def data(block: int) -> BlockData:
    return small_banks.block_data(small_banks.spec().layout, block)


def test_blocks_are_written_in_order_by_a_thread_and_reported_with_their_size() -> None:
    writer, told = Recorder(), []
    with BlockWriter(writer, lambda *event: told.append(event)) as blocks:  # type: ignore[arg-type]
        for block in range(3):
            blocks.put(block, finished(block))
        blocks.drain()
        assert writer.written == [0, 1, 2]
    assert [(block, len(block_data.rows)) for block, block_data in told] == [
        (0, 4),
        (1, 4),
        (2, 2),
    ]
    assert threading.get_ident() not in writer.threads


def test_a_failed_write_surfaces_and_the_writer_ends() -> None:
    writer = Recorder(fails_at=1)
    with BlockWriter(writer, lambda *_: None) as blocks:  # type: ignore[arg-type]
        blocks.put(0, finished(0))
        blocks.put(1, finished(1))
        with pytest.raises(DiskSpaceError, match="block 1 does not fit"):
            blocks.drain()
    assert writer.written == [0]
    assert "block-writer" not in {thread.name for thread in threading.enumerate()}


def test_a_block_committed_by_another_run_is_not_reported_and_its_memory_is_reused() -> None:
    writer, told, used = Recorder(there=(1,)), list[int](), list[BlockData]()
    with BlockWriter(writer, lambda block, _: told.append(block), used.append) as blocks:  # type: ignore[arg-type]
        for block in range(3):
            blocks.put(block, finished(block))
        blocks.drain()
    assert (told, len(used)) == ([0, 2], 3)


def test_a_block_that_cannot_be_finished_ends_the_writing() -> None:
    writer = Recorder()

    def finish() -> BlockData:
        raise EngineError("a row never came")

    with BlockWriter(writer, lambda *_: None) as blocks:  # type: ignore[arg-type]
        blocks.put(2, finished(2))
        blocks.put(0, finish)
        with pytest.raises(EngineError, match="a row never came"):
            blocks.drain()
    assert writer.written == [2]


@pytest.mark.parametrize("rows", [4, 3])
def test_zarr_reads_a_shard_with_its_padding(tmp_path: Path, rows: int) -> None:
    grid = Grid(4, 4097, "float16", 4)
    values = np.random.default_rng(0).normal(size=(rows, 4097)).astype(np.float16)
    (tmp_path / "c" / "0").mkdir(parents=True)
    write_shard(tmp_path / "c" / "0" / "0", grid, values)
    height, width = grid.shard_shape
    whole = replace(grid, rows=height, columns=width)
    (tmp_path / "zarr.json").write_bytes(rows_metadata(whole, ("query", "token")))
    stored = zarr.open_array(tmp_path, mode="r")[...]
    np.testing.assert_array_equal(stored[:rows, :4097], values)
    assert np.isnan(stored[rows:]).all()
    assert np.isnan(stored[:, 4097:]).all()


def test_buffers_are_used_again_where_they_fit() -> None:
    buffers, layout = RowBuffers(), small_banks.spec().layout
    first = buffers.take(layout)
    assert first is not None
    assert first.shape == (small_banks.BLOCK_ROWS, small_banks.VOCAB)
    assert not np.shares_memory(buffers.take(layout), first)
    buffers.give_back(BlockData(first[:2], data(0).scores))
    assert np.shares_memory(buffers.take(layout), first)
    buffers.give_back(BlockData(first, data(0).scores))
    other = buffers.take(small_banks.spec(dtype="float16").layout)
    assert other is not None
    assert other.dtype == "float16"
    assert buffers.take(small_banks.spec(keep=Keep("options")).layout) is None
