"""Heads written once, whole and durable, by any number of writers."""

from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np

from logitbank.errors import DamagedError
from logitbank.store.deposits.rows import write_shard
from logitbank.store.files import disk, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.staging import Staging, remove_dead_staging
from logitbank.store.format import zarrays
from logitbank.store.format.grid import Grid
from logitbank.store.format.heads import OutputHead, operations_to_json
from logitbank.store.format.numbers import STORED_AS
from logitbank.store.heads.stored import BIAS, CHUNK_ROWS, FOLDER, StoredHead, arrays_of

_BLOCK_BYTES = 256 * 2**20
"""Bytes of a shard before compression: that of a model with 100 million weights there is one."""


def put_head(root: Path, head: OutputHead) -> str:
    """Store a head, unless it is stored; see `Bank.put_head`."""
    path = objects.plain_path(root, f"{FOLDER}/{head.digest}")
    if (path / "zarr.json").exists():
        if missing := StoredHead.open(root, head.digest).missing():
            raise DamagedError(
                f"{path}/{missing[0]} is not what was written there; run `logitbank verify"
                " --repair`, and then the same command again"
            )
        return head.digest
    size = head.weight.nbytes
    create_head(root, head.digest, lambda folder: _write(folder, head), size=size)
    return head.digest


def create_head(root: Path, digest: str, write: Callable[[Path], None], *, size: int) -> None:
    """Let `write` make a head's folder beside, and move it into place whole, unless it exists.

    `write` is called with the path of a folder to create, with every file durable. `size` is the
    number of bytes, for the message of a full disk.
    """
    path = objects.plain_path(root, f"{FOLDER}/{digest}")
    folder = path.parent
    if (path / "zarr.json").exists():
        return
    with disk.naming_full(path, size):
        objects.make_folders(root, folder)
        if not (folder / "zarr.json").exists():
            objects.write_new(folder / "zarr.json", zarrays.GROUP)
        with locks.locked(folder / ".lock"):
            remove_dead_staging(folder)
            staging = Staging(folder)
        try:
            made = staging.path / "head"
            write(made)
            for inside in [*(p for p in made.rglob("*") if p.is_dir()), made]:
                objects.sync(inside)
            with locks.locked(folder / ".lock"):
                if not path.exists():
                    made.rename(path)
                    objects.sync(folder)
        finally:
            staging.remove()


def _write(path: Path, head: OutputHead) -> None:
    """Write a head's folder, with every file durable."""
    grid = _grid(head)
    path.mkdir()
    written: dict[str, Digest] = {}
    for name, metadata in arrays_of(grid, head.bias is not None).items():
        (path / name / "c").mkdir(parents=True)
        objects.write_durable(path / name / "zarr.json", metadata)
        written[f"{name}/zarr.json"] = objects.digest_of(metadata)
    for block in range(grid.blocks):
        rows = grid.rows_of(block)
        file = path / "weight" / "c" / str(block) / "0"
        file.parent.mkdir()
        beside = path / f"block-{block}"
        write_shard(beside, grid, head.weight[rows.start : rows.stop]).rename(file)
        written[f"weight/c/{block}/0"] = objects.fsync_digest(file)
        _remove(beside)
    if head.bias is not None:
        data = np.ascontiguousarray(head.bias, "<f4").tobytes()
        data += google_crc32c.value(data).to_bytes(4, "little")
        objects.write_durable(path / BIAS, data)
        written[BIAS] = objects.digest_of(data)
    about = {
        "outputs": head.outputs,
        "width": head.width,
        "dtype": head.dtype,
        "bias": head.bias is not None,
        "after": operations_to_json(head.after),
        "content": head.content._asdict(),
        "block_rows": grid.block_rows,
        "objects": {name: digest._asdict() for name, digest in sorted(written.items())},
    }
    arrays = arrays_of(grid, head.bias is not None)
    objects.write_durable(path / "zarr.json", zarrays.group_metadata(about, arrays))


def _remove(folder: Path) -> None:
    """Remove the folder of an array whose chunk was moved out of it."""
    (folder / "zarr.json").unlink()
    for empty in (folder / "c" / "0", folder / "c", folder):
        empty.rmdir()


def _grid(head: OutputHead) -> Grid:
    stored = STORED_AS[head.dtype]
    fit = max(1, _BLOCK_BYTES // (head.width * np.dtype(stored).itemsize))
    rows = min(head.outputs, fit)
    if rows > CHUNK_ROWS:  # a whole number of inner chunks
        rows = -(-rows // CHUNK_ROWS) * CHUNK_ROWS
    return Grid(head.outputs, head.width, stored, rows)
