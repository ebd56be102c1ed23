"""Shards of rows: Zarr writes them; here inner chunks are read, verified and decoded.

zarrs looks at no CRC-32C where it decodes a part of a shard, Zarr's own pipeline is half as fast,
and neither knows what was committed. Which chunks are needed is worked out from plain values.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike

from logitbank.errors import DamagedError
from logitbank.store.deposits.scores import VERIFY
from logitbank.store.files import copies, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import commits, zarrays
from logitbank.store.format.block import finite_rows
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.grid import Grid
from logitbank.store.format.schema import RowArray
from logitbank.store.format.shards import Shard, decode, index_offset, shard

_THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4


class Part(NamedTuple):
    """The part of an axis in one inner chunk."""

    chunk: int
    """Number of the inner chunk along the axis."""
    inside: slice | np.ndarray
    """Where in the inner chunk."""
    outside: slice | np.ndarray
    """Where in the result."""


def parts(index: np.ndarray | None, length: int, width: int) -> list[Part]:
    """Divide an axis of `length`, or an index into it in any order, among chunks of `width`.

    >>> for part in parts(np.array([7, 0, 1]), 10, 4):
    ...     print(*part)
    0 slice(0, 2, None) slice(1, 3, None)
    1 slice(3, 4, None) slice(0, 1, None)
    """
    if index is None:
        starts = range(0, length, width)
        ends = [min(start + width, length) for start in starts]
        return [
            Part(start // width, slice(0, end - start), slice(start, end))
            for start, end in zip(starts, ends, strict=True)
        ]
    chunk = index // width
    order = np.argsort(chunk, kind="stable")
    divided = np.split(order, np.flatnonzero(np.diff(chunk[order])) + 1)
    return [
        Part(at, _as_slice(index[places] - at * width), _as_slice(places))
        for places in divided
        if len(places)
        for at in [int(chunk[places[0]])]
    ]


def _as_slice(index: np.ndarray) -> slice | np.ndarray:
    """An index as a slice if it is contiguous, since slices are copied at once."""
    if (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


@dataclass(frozen=True)
class ShardedArray:
    """An array of rows in a folder, one shard a block: `c/<block>/0`."""

    path: Path
    grid: Grid
    committed: Mapping[int, Digest]
    """Digest of the shard of each block that is read."""
    _of_thread: threading.local = field(default_factory=threading.local)

    @classmethod
    def open(
        cls, path: Path, metadata: bytes, grid: Grid, committed: Mapping[int, Digest]
    ) -> "ShardedArray":
        """Open an array whose `zarr.json` must be exactly `metadata`, or DamagedError."""
        file = objects.plain_path(path, "zarr.json")
        try:
            same = file.stat().st_size == len(metadata) and file.read_bytes() == metadata
        except OSError as error:
            raise DamagedError(f"{file} cannot be read ({error}); {VERIFY}") from error
        if not same:
            raise DamagedError(f"{file} is not the metadata of this array; {VERIFY}")
        return cls(path, grid, committed)

    def check_sizes(self) -> None:
        """Refuse shards that have not the committed size, or a size that no such shard has."""
        for block in self.committed:
            with self._explained(block):
                index_offset(self._size(block), self.committed[block], self.grid)

    def read(
        self,
        rows: np.ndarray | None,
        columns: np.ndarray | None = None,
        *,
        dtype: DTypeLike,
    ) -> np.ndarray:
        """Values at these rows and columns, None is all of them, as `dtype`.

        Raises DamagedError: a shard is not there, is not as it was committed, or holds a number
        that is not finite.
        """
        height, width = self.grid.chunk_shape
        axes = ((rows, self.grid.rows), (columns, self.grid.columns))
        shape = [length if index is None else len(index) for index, length in axes]
        if 0 in shape:
            return np.empty(shape, dtype)
        of_block: dict[int, list[Part]] = {}
        for part in parts(rows, self.grid.rows, height):
            of_block.setdefault(part.chunk * height // self.grid.block_rows, []).append(part)
        shards = {block: self._shard(block) for block in of_block}
        of_columns = parts(columns, self.grid.columns, width)
        jobs = [
            (block, *chunk)
            for block, rows_of_block in of_block.items()
            for chunk in product(rows_of_block, of_columns)
        ]
        out = np.empty(shape, dtype)  # sizes are borne out by now: an index is as long as they say
        in_parallel(lambda job: self._decode(shards[job[0]], *job, out), jobs, at_once=_THREADS)
        return out

    def _decode(self, shard: Shard, block: int, rows: Part, columns: Part, out: np.ndarray) -> None:
        """Decode an inner chunk into its place in the result."""
        width = self.grid.shard_shape[1] // self.grid.chunk_shape[1]
        height = self.grid.block_rows // self.grid.chunk_shape[0]
        chunk = rows.chunk % height * width + columns.chunk
        with self._explained(block):
            decode(shard.frame(chunk), decoded := self._scratch())
            values = decoded[rows.inside][:, columns.inside]
            if not finite_rows(values).all():
                raise ValueError(f"inner chunk {chunk} holds a number that is not finite")
            if isinstance(rows.outside, slice) or isinstance(columns.outside, slice):
                out[rows.outside, columns.outside] = values
            else:
                out[np.ix_(rows.outside, columns.outside)] = values

    def _scratch(self) -> np.ndarray:
        """An inner chunk to decode into, one for each thread: new memory takes a third as long."""
        if not hasattr(self._of_thread, "scratch"):
            dtype = np.dtype(self.grid.dtype).newbyteorder("<")
            self._of_thread.scratch = np.empty(self.grid.chunk_shape, dtype)
        return cast(np.ndarray, self._of_thread.scratch)

    def _shard(self, block: int) -> Shard:
        with self._explained(block):
            size = self._size(block)
            return shard(partial(self._pread, block), size, self.committed[block], self.grid)

    def _size(self, block: int) -> int:
        path = objects.plain_path(self.path, f"c/{block}/0")
        objects.require_file(path)
        return path.stat().st_size

    def _pread(self, block: int, offset: int, length: int) -> bytes:
        # Opened each time, since a bank may have more shards than a process may have open files;
        # that it is a plain path was seen with its size. Each call to the system gives the
        # interpreter away: looking again took a quarter of the time of one token of all rows.
        handle = os.open(f"{self.path}/c/{block}/0", os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return os.pread(handle, length, offset)
        finally:
            os.close(handle)

    @contextmanager
    def _explained(self, block: int) -> Iterator[None]:
        """Name the shard, its block and its rows in what is wrong with it."""
        rows, name = self.grid.rows_of(block), f"{self.path}/c/{block}/0"
        where = f"{name} (block {block}, rows {rows.start}–{rows.stop - 1})"
        try:
            yield
        except FileNotFoundError as error:
            advice = copies.missing_advice(name, VERIFY)
            raise DamagedError(f"{where} was committed and is not there; {advice}") from error
        except (OSError, ValueError, RuntimeError) as error:
            raise DamagedError(f"{where} is not as it was committed: {error}; {VERIFY}") from error


def shard_digests(
    deposit: Path, array: RowArray, state: Committed, blocks: Iterable[int]
) -> dict[int, Digest]:
    """Committed digests of an array's shards of some blocks, by block.

    Raises FileNotFoundError if a seal has just replaced a commit, and DamagedError if a commit is
    damaged or does not list its shard.
    """
    names = {int(block): SEAL if state.sealed else str(block) for block in blocks}
    listed = {name: commits.digests(deposit, name) for name in {*names.values()}}
    return {
        block: _shard_digest(listed[name], array, block, deposit) for block, name in names.items()
    }


def _shard_digest(
    listed: Mapping[str, Digest], array: RowArray, block: int, deposit: Path
) -> Digest:
    try:
        return listed[f"{array}/c/{block}/0"]
    except KeyError as error:
        raise DamagedError(
            f"{deposit}: the commit of block {block} does not list its shard; {VERIFY}"
        ) from error


def write_shard(folder: Path, grid: Grid, values: np.ndarray) -> Path:
    """Write rows as one shard of a grid and return its file; nothing is durable yet."""
    whole = _whole_shard(grid, values)
    if whole is None:  # a whole shard is written twice as fast as a part of one
        rows, columns = values.shape
        whole = grid.empty_shard()
        whole[:rows, :columns] = values
        whole[rows:] = whole[:, columns:] = grid.padding
    return write_array(folder, zarrays.shard_metadata(grid), whole)


def _whole_shard(grid: Grid, values: np.ndarray) -> np.ndarray | None:
    """The shard that rows are part of already, with its padding behind each; None if they are not.

    So nothing is copied of what an engine's rows were put into (`Grid.empty_shard`).
    """
    whole = values if values.base is None else values.base
    if not isinstance(whole, np.ndarray) or whole.shape != grid.shard_shape:
        return None
    same = values.dtype == whole.dtype and values.ctypes.data == whole.ctypes.data
    if not same or values.shape != (grid.block_rows, grid.columns):
        return None
    padding = whole[:, grid.columns :]
    filled = (padding == grid.padding) | (padding != padding)
    return whole if values.strides == whole.strides and filled.all() else None


def write_array(folder: Path, metadata: bytes, values: np.ndarray) -> Path:
    """Write an array of one chunk and return the chunk's file."""
    folder.mkdir()
    (folder / "zarr.json").write_bytes(metadata)
    array = zarrays.open_array(folder)
    array[...] = values
    return folder.joinpath("c", *["0"] * values.ndim)
