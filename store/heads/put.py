"""Writing of LM heads: once, whole and durable, by any number of writers."""

from pathlib import Path

import numpy as np

from logitbank.errors import DamagedError
from logitbank.store.deposits.rows import write_shard
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import staging_folder
from logitbank.store.format import zarrays
from logitbank.store.format.grid import Grid
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.numbers import STORED_AS
from logitbank.store.heads.stored import BIAS, CHUNK_ROWS, FOLDER, StoredHead, array_metadata

_BLOCK_BYTES = 256 * 2**20
"""Bytes of a shard before compression."""


def put_head(root: Path, head: OutputHead) -> str:
    """Store a head, unless it is stored; see `Bank.put_head`."""
    path = objects.plain_path(root, f"{FOLDER}/{head.digest}")
    if (path / "zarr.json").exists():
        if missing := StoredHead.open(root, head.digest).missing():
            raise DamagedError(
                f"{path}/{missing[0]} is damaged. Fix: run `logitbank verify --repair`, then the"
                " same command again."
            )
        return head.digest
    folder = path.parent
    with disk.naming_full(path, head.weight.nbytes):
        objects.make_folders(root, folder)
        if not (folder / "zarr.json").exists():
            objects.write_new(folder / "zarr.json", zarrays.GROUP)
        with staging_folder(folder) as staging:
            made = staging / "head"
            _write(made, head)
            for inside in [*(p for p in made.rglob("*") if p.is_dir()), made]:
                objects.sync(inside)
            with locks.locked(root / ".lock"):  # as of writers that copy heads
                if not (path / "zarr.json").exists():
                    if path.exists():  # a killed copy left a part of it
                        objects.remove_folder(path)
                    made.rename(path)
                    objects.sync(folder)
    return head.digest


def _write(path: Path, head: OutputHead) -> None:
    """Write a head's folder, with every file durable."""
    grid = _grid(head)
    path.mkdir()
    written: dict[str, Digest] = {}
    arrays = array_metadata(grid, head.bias is not None)
    for name, metadata in arrays.items():
        (path / name / "c").mkdir(parents=True)
        objects.write_durable(path / name / "zarr.json", metadata)
        written[f"{name}/zarr.json"] = objects.compute_digest(metadata)
    for block in range(grid.blocks):
        rows, name = grid.block_range(block), f"weight/c/{block}/0"
        (path / name).parent.mkdir()
        written[name] = write_shard(path / name, grid, head.weight[rows.start : rows.stop])
    if head.bias is not None:
        data = zarrays.bias_chunk(head.bias)
        objects.write_durable(path / BIAS, data)
        written[BIAS] = objects.compute_digest(data)
    attributes = {
        "outputs": head.outputs,
        "width": head.width,
        "dtype": head.dtype,
        "bias": head.bias is not None,
        "after": head.after,
        "content": head.content._asdict(),
        "block_rows": grid.block_rows,
        "objects": {name: digest._asdict() for name, digest in sorted(written.items())},
    }
    objects.write_durable(path / "zarr.json", zarrays.group_metadata(attributes, arrays))


def _grid(head: OutputHead) -> Grid:
    stored = STORED_AS[head.dtype]
    rows = max(1, _BLOCK_BYTES // (head.width * np.dtype(stored).itemsize))
    rows = min(head.outputs, rows)
    if rows > CHUNK_ROWS:  # a whole number of inner chunks
        rows = -(-rows // CHUNK_ROWS) * CHUNK_ROWS
    return Grid(head.outputs, head.width, stored, rows)
