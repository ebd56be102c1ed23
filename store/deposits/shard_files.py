"""Shards of rows: written, found again, and the digests that they were committed with."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from logitbank.errors import DamagedError
from logitbank.store.deposits.rows import Shards
from logitbank.store.deposits.scores import VERIFY
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.grid import Grid
from logitbank.store.format.schema import RowArray


def shards_of(path: Path, expected: bytes) -> Shards:
    """Where the shards of an array are, once what a stranger may have put beside them is refused.

    Raises DamagedError: its metadata are not the `expected` ones.
    """
    metadata = objects.plain_path(path, "zarr.json")
    try:
        same = metadata.stat().st_size == len(expected) and metadata.read_bytes() == expected
    except OSError as error:
        raise DamagedError(f"{metadata} cannot be read ({error}); {VERIFY}") from error
    if not same:
        raise DamagedError(f"{metadata} is not the metadata of this array; {VERIFY}")
    return Shards(path)


def shard_digests(
    deposit: Path, array: RowArray, state: Committed, blocks: Iterable[int]
) -> dict[int, Digest]:
    """What was committed of an array's shards of some blocks, by block.

    Raises FileNotFoundError: a seal has just replaced a commit.
    Raises DamagedError: a commit is damaged, or does not list its shard.
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
