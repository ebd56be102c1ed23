"""What a stranger's shard says of itself, checked before anything is decompressed.

A Zstandard frame of 61 kB can hold 2 GB. Every inner chunk of a bank has one size, so a frame that
tells another, or none, is refused; the decoders refuse one that holds more than it tells.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from logitbank.errors import DamagedError
from logitbank.store import objects
from logitbank.store.schema import Layout

_MAGIC = b"\x28\xb5\x2f\xfd"
_ABSENT = np.uint64(2**64 - 1)
HEADER = 18
"""Bytes that the longest frame header takes."""
CHECKSUM = 4
"""Bytes of CRC-32C after each frame."""


def inner_bytes(layout: Layout) -> int:
    """Of every inner chunk, decompressed."""
    return int(np.prod(layout.chunk_shape)) * np.dtype(layout.dtype).itemsize


def frame_bytes(header: bytes) -> int | None:
    """The size that a Zstandard frame tells of its content; None where it tells none.

    Parameters
    ----------
    header
        Its first `HEADER` bytes, or all of it. The form is that of RFC 8878, section 3.1.1.

    Examples
    --------
    >>> frame_bytes(bytes.fromhex("28b52ffd2460"))
    96
    """
    if len(header) < 6 or header[:4] != _MAGIC:
        return None
    descriptor = header[4]
    single = bool(descriptor & 0x20)
    size = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    field = header[start : start + size]
    if not size or len(field) < size:
        return None
    return int.from_bytes(field, "little") + (256 if size == 2 else 0)


def blosc_bytes(header: bytes, length: int) -> int | None:
    """The size that a Blosc frame of `length` bytes tells of its content; None if it tells none.

    Its header has 16 bytes: four of versions and flags, then the sizes of content, block and frame.

    Examples
    --------
    >>> blosc_bytes(bytes.fromhex("02011402" "60000000" "60000000" "30000000"), 48)
    96
    """
    if len(header) < 16 or int.from_bytes(header[12:16], "little") != length:
        return None
    return int.from_bytes(header[4:8], "little")


def check_shards(
    array: Path, layout: Layout, blocks: Iterable[int], *, frames: bool = True
) -> None:
    """Look at the index and, if told, the frame headers of committed blocks' shards.

    Raises
    ------
    DamagedError
        A shard is not there; an inner chunk lies outside it, or is not a frame of the one size.
    """
    count = layout.shard_shape[0] // layout.chunk_shape[0]
    count *= layout.shard_shape[1] // layout.chunk_shape[1]
    for block in blocks:
        path = array / "c" / str(block) / "0"
        objects.require_file(path)
        try:
            with path.open("rb") as file:
                _check(file.fileno(), count, layout if frames else None)
        except FileNotFoundError as error:
            raise DamagedError(
                f"row {layout.rows(block).start} is committed but its shard {path} is not there; "
                "run `logitbank verify`"
            ) from error
        except ValueError as error:
            raise DamagedError(f"{path} is no shard of this bank ({error})") from error


def _check(file: int, count: int, layout: Layout | None) -> None:
    size = os.fstat(file).st_size
    start = size - 16 * count - 4
    if start < 0:
        raise ValueError("it is shorter than its index")
    if layout is None:
        return
    entries = np.frombuffer(os.pread(file, 16 * count, start), "<u8").reshape(count, 2)
    for offset, length in entries[entries[:, 0] != _ABSENT]:
        if int(offset) + int(length) > start or length < 6:
            raise ValueError("an inner chunk lies outside it")
        check_frame(os.pread(file, HEADER, int(offset)), int(length), layout)


def check_frame(header: bytes, length: int, layout: Layout) -> None:
    """Raise ValueError unless an inner chunk tells that its content has the expected size.

    Parameters
    ----------
    header
        Its first `HEADER` bytes, or all of it.
    length
        Its bytes, checksum included.
    """
    blosc, expected = layout.codec == "blosc", inner_bytes(layout)
    told = blosc_bytes(header, length - CHECKSUM) if blosc else frame_bytes(header)
    if told != expected:
        what = "no size" if told is None else f"{told:,} bytes"
        raise ValueError(f"an inner chunk tells {what}, and all have {expected:,}")
