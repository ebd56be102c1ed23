"""One thread writes while another scores; nothing is lost, reordered or kept quiet."""

import threading
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.workers.blocks.writer import BlockWriter, RowBuffers
from logitbank.errors import DiskSpaceError
from logitbank.store import BlockData, Keep
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


def data(block: int) -> BlockData:
    return small_banks.block_data(small_banks.spec().layout, block)


def test_blocks_are_written_in_order_in_another_thread_and_told_with_their_size() -> None:
    writer, told = Recorder(), []
    with BlockWriter(writer, lambda *event: told.append(event)) as blocks:  # type: ignore[arg-type]
        for block in range(3):
            blocks.put(block, data(block))
        blocks.drain()
        assert writer.written == [0, 1, 2]
    assert [(block, len(block_data.logprobs)) for block, block_data in told] == [
        (0, 4),
        (1, 4),
        (2, 2),
    ]
    assert threading.get_ident() not in writer.threads


def test_a_failed_write_surfaces_and_the_writer_ends() -> None:
    writer = Recorder(fails_at=1)
    with BlockWriter(writer, lambda *_: None) as blocks:  # type: ignore[arg-type]
        blocks.put(0, data(0))
        blocks.put(1, data(1))
        with pytest.raises(DiskSpaceError, match="block 1 does not fit"):
            blocks.drain()
    assert writer.written == [0]
    assert "block-writer" not in {thread.name for thread in threading.enumerate()}


def test_a_block_that_another_had_committed_is_not_told_and_its_memory_is_used_again() -> None:
    writer, told, used = Recorder(there=(1,)), list[int](), list[BlockData]()
    with BlockWriter(writer, lambda block, _: told.append(block), used.append) as blocks:  # type: ignore[arg-type]
        for block in range(3):
            blocks.put(block, data(block))
        blocks.drain()
    assert (told, len(used)) == ([0, 2], 3)


def test_what_is_not_drained_is_written_before_it_is_left() -> None:
    writer = Recorder()
    with BlockWriter(writer, lambda *_: None) as blocks:  # type: ignore[arg-type]
        blocks.put(2, data(2))
    assert writer.written == [2]


def test_blocks_reach_a_bank(tmp_path: Path) -> None:
    bank = small_banks.new_bank(tmp_path / "b.zarr")
    spec = small_banks.spec()
    sizes: list[Any] = []
    with bank.begin(spec) as writer, BlockWriter(writer, lambda *e: sizes.append(e)) as blocks:
        for block in range(3):
            blocks.put(block, data(block))
        blocks.drain()
        writer.seal()
    (deposit,) = bank.deposits()
    assert deposit.sealed
    assert deposit.rows_committed == small_banks.QUERIES


def test_buffers_are_used_again_where_they_fit() -> None:
    buffers, layout = RowBuffers(), small_banks.spec().layout
    first = buffers.take(layout)
    assert first is not None
    assert first.shape == (small_banks.BLOCK_ROWS, small_banks.VOCAB)
    assert buffers.take(layout) is not first
    buffers.give_back(BlockData(first[:2], data(0).scores))
    assert buffers.take(layout) is first
    buffers.give_back(BlockData(first, data(0).scores))
    other = buffers.take(small_banks.spec(dtype="float16").layout)
    assert other is not None
    assert other.dtype == "float16"
    assert buffers.take(small_banks.spec(keep=Keep("options")).layout) is None
