"""Arrays of rows, one shard per block: inner chunks are read, verified and decoded in threads.

zarrs checks no CRC-32C when it decodes a part of a shard, Zarr's pipeline takes twice as long, and
neither knows what was committed.
"""

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike

from logitbank.errors import DamagedError
from logitbank.store.files import copies, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import closing_pool, in_parallel
from logitbank.store.format import commits
from logitbank.store.format.block import finite_rows
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.grid import Grid
from logitbank.store.format.schema import RowArray
from logitbank.store.format.shards import Shard, encode_chunk, encode_index, shard
from logitbank.wording import VERIFY

_THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4


class Part(NamedTuple):
    """The part of an axis in one inner chunk."""

    chunk: int
    """Number of the inner chunk along the axis."""
    inside: slice | np.ndarray
    """Indices in the inner chunk."""
    outside: slice | np.ndarray
    """Indices in the result."""


def parts(index: np.ndarray | None, length: int, width: int) -> list[Part]:
    """Divide an axis of `length`, or an index into it in any order, among chunks of `width`.

    >>> for part in parts(np.array([7, 0, 1]), 10, 4):
    ...     print(*part)
    0 slice(0, 2, None) slice(1, 3, None)
    1 slice(3, 4, None) slice(0, 1, None)
    """
    if index is None:
        spans = [(start, min(start + width, length)) for start in range(0, length, width)]
        return [Part(start // width, slice(0, end - start), slice(start, end))
                for start, end in spans]  # fmt: skip
    chunk = index // width
    order = np.argsort(chunk, kind="stable")
    divided = np.split(order, np.flatnonzero(np.diff(chunk[order])) + 1)
    found = []
    for places in divided:
        if len(places):
            number = int(chunk[places[0]])
            inside = _as_slice(index[places] - number * width)
            found.append(Part(number, inside, _as_slice(places)))
    return found


def _as_slice(index: np.ndarray) -> slice | np.ndarray:
    """An index as a slice if it is contiguous, because slices are copied at once."""
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
    _local: threading.local = field(default_factory=threading.local)

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

    def read(
        self,
        rows: np.ndarray | None,
        columns: np.ndarray | None = None,
        *,
        dtype: DTypeLike,
    ) -> np.ndarray:
        """Values at these rows and columns, all if None, as `dtype`.

        Raises DamagedError if a shard is missing, differs from its commit, or contains a number
        that is not finite.
        """
        height, width = self.grid.chunk_shape
        axes = ((rows, self.grid.rows), (columns, self.grid.columns))
        shape = [length if index is None else len(index) for index, length in axes]
        if 0 in shape:
            return np.empty(shape, dtype)
        row_parts: dict[int, list[Part]] = {}
        for part in parts(rows, self.grid.rows, height):
            row_parts.setdefault(part.chunk * height // self.grid.block_rows, []).append(part)
        shards = {block: self._shard(block) for block in row_parts}
        column_parts = parts(columns, self.grid.columns, width)
        jobs = [
            (block, *chunk)
            for block, of_block in row_parts.items()
            for chunk in product(of_block, column_parts)
        ]
        out = np.empty(shape, dtype)  # the indices of the shards have confirmed the claimed sizes
        in_parallel(lambda job: self._decode(shards[job[0]], *job, out), jobs, max_threads=_THREADS)
        return out

    def require_claims(self, block: int) -> None:
        """Refuse a shard that claims more than its block has, before another reader decodes it."""
        with self._explained(block):
            self._shard(block).require_claims()

    def _decode(self, shard: Shard, block: int, rows: Part, columns: Part, out: np.ndarray) -> None:
        """Decode an inner chunk into its place in the result."""
        width = self.grid.shard_shape[1] // self.grid.chunk_shape[1]
        height = self.grid.block_rows // self.grid.chunk_shape[0]
        chunk = rows.chunk % height * width + columns.chunk
        with self._explained(block):
            shard.decode(chunk, decoded := self._scratch())
            values = decoded[rows.inside][:, columns.inside]
            if not finite_rows(values).all():
                raise ValueError(f"inner chunk {chunk} contains a number that is not finite")
            if isinstance(rows.outside, slice) or isinstance(columns.outside, slice):
                out[rows.outside, columns.outside] = values
            else:
                out[np.ix_(rows.outside, columns.outside)] = values

    def _scratch(self) -> np.ndarray:
        """An inner chunk to decode into, one per thread: new memory takes a third of the time."""
        if not hasattr(self._local, "scratch"):
            dtype = np.dtype(self.grid.dtype).newbyteorder("<")
            self._local.scratch = np.empty(self.grid.chunk_shape, dtype)
        return cast(np.ndarray, self._local.scratch)

    def _shard(self, block: int) -> Shard:
        with self._explained(block):
            path = objects.plain_path(self.path, f"c/{block}/0")
            objects.require_file(path)
            size = path.stat().st_size
            rows = len(self.grid.block_range(block))
            return shard(partial(self._pread, block), size, self.committed[block], self.grid, rows)

    def _pread(self, block: int, offset: int, length: int) -> bytes:
        # Opened each time: a bank may have more shards than a process may have open files. `_shard`
        # checked that the path is plain. Another check took a quarter of the time of one token of
        # all rows.
        handle = os.open(f"{self.path}/c/{block}/0", os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return os.pread(handle, length, offset)
        finally:
            os.close(handle)

    @contextmanager
    def _explained(self, block: int) -> Iterator[None]:
        """Name the shard, its block and its rows in errors."""
        rows, name = self.grid.block_range(block), f"{self.path}/c/{block}/0"
        where = f"{name} (block {block}, rows {rows.start}–{rows.stop - 1})"
        try:
            yield
        except FileNotFoundError as error:
            advice = copies.missing_advice(name, VERIFY)
            raise DamagedError(f"{where} was committed but is missing; {advice}") from error
        except (OSError, ValueError, RuntimeError) as error:
            raise DamagedError(f"{where} differs from its commit: {error}; {VERIFY}") from error


def shard_digests(
    deposit: Path, array: RowArray, state: Committed, blocks: Iterable[int]
) -> dict[int, Digest]:
    """Committed digests of an array's shards of some blocks, by block.

    Raises FileNotFoundError if a seal has just replaced a commit, and DamagedError if a commit is
    damaged or does not list its shard.
    """
    names = {int(block): SEAL if state.sealed else str(block) for block in blocks}
    listed = {name: commits.digests(deposit, name) for name in {*names.values()}}
    try:
        return {block: listed[name][f"{array}/c/{block}/0"] for block, name in names.items()}
    except KeyError as error:
        raise DamagedError(f"{deposit}: no commit lists {error.args[0]}; {VERIFY}") from error


def write_shard(file: Path, grid: Grid, values: np.ndarray) -> Digest:
    """Write the rows of a block as one durable shard of a grid; its digest.

    Frames are hashed while the next ones are compressed.
    """
    (height, width), (rows, columns) = grid.chunk_shape, grid.shard_shape
    corners = [*product(range(0, rows, height), range(0, columns, width))]

    def encode(corner: tuple[int, int]) -> bytes:
        row, column = corner
        if row >= len(values):
            return b""  # only padding, which a shard does not store
        part = values[row : row + height, column : column + width]
        if part.shape != grid.chunk_shape:
            chunk = np.full(grid.chunk_shape, grid.padding, grid.dtype)
            chunk[: part.shape[0], : part.shape[1]] = part
            part = chunk
        return encode_chunk(np.ascontiguousarray(part))

    digest, lengths = hashlib.sha256(), list[int]()
    pool = ThreadPoolExecutor(min(_THREADS, len(corners)))  # starts no thread before the first call
    with closing_pool(pool), file.open("wb") as shard_file:
        for frame in (pool.map if len(corners) > 1 else map)(encode, corners):
            digest.update(frame)
            shard_file.write(frame)
            lengths.append(len(frame))
        index = encode_index(lengths)
        digest.update(index)
        shard_file.write(index)
        shard_file.flush()
        os.fsync(shard_file.fileno())
    return Digest(digest.hexdigest(), sum(lengths) + len(index))
