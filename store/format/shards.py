"""Bytes of one shard: inner chunks in Blosc frames, then an index, each with its CRC-32C.

Readers compare the size of a shard with the committed one and check each CRC-32C before they
decode. Hostile shards exist also: a small frame can contain 2 GB. All inner chunks of a bank have
one size, so a frame that names another size, or none, is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np

from logitbank.store.files.objects import Digest, compute_digest
from logitbank.store.format.grid import Grid

_ABSENT = np.uint64(2**64 - 1)
HEADER = 16
"""Bytes of the header of a Blosc frame."""
CHECKSUM = 4
"""Bytes of CRC-32C after each frame, and after the index."""
WHOLE = 2**18
"""Bytes up to which a shard is read whole and compared by its SHA-256, which takes 0.2 ms.

Many small shards have the same size, so the size does not distinguish them.
"""
_SOUND = google_crc32c.value(bytes(CHECKSUM))
"""CRC-32C of any bytes that their own CRC-32C follows."""
Read = Callable[[int, int], bytes]
"""Reads bytes of a shard: offset and number; fewer bytes if it is shorter."""


@dataclass(frozen=True)
class Shard:
    """A shard whose size and index are as they were committed."""

    grid: Grid
    index: np.ndarray
    """(n, 2) uint64: offset and length of each inner chunk, checksum included."""
    read: Read

    def frame(self, chunk: int) -> memoryview:
        """A compressed inner chunk, verified, or ValueError."""
        offset, length = (int(value) for value in self.index[chunk])
        if offset == _ABSENT:
            raise ValueError(f"inner chunk {chunk} is missing")
        frame = self.read(offset, length)
        check_frame(frame[:HEADER], length, self.grid)
        if len(frame) != length or google_crc32c.value(frame) != _SOUND:
            raise ValueError(f"the CRC-32C of inner chunk {chunk} is not the written one")
        return memoryview(frame)[:-CHECKSUM]


def _index_bytes(grid: Grid) -> int:
    (rows, tokens), (height, width) = grid.shard_shape, grid.chunk_shape
    return 16 * (rows // height) * (tokens // width)


def shard(read: Read, size: int, committed: Digest, grid: Grid) -> Shard:
    """A shard of `size` bytes with verified size and index, or ValueError."""
    if size != committed.bytes:
        raise ValueError(f"{size:,} bytes, committed were {committed.bytes:,}")
    length = _index_bytes(grid)
    start = committed.bytes - length - CHECKSUM
    if start < 0:
        raise ValueError("it is shorter than its index")
    if committed.bytes <= WHOLE:
        whole = read(0, committed.bytes)
        if compute_digest(whole) != committed:
            raise ValueError("its SHA-256 is not the committed one")
        read = lambda offset, count: whole[offset : offset + count]  # noqa: E731
    data = read(start, length + CHECKSUM)
    if len(data) != length + CHECKSUM or google_crc32c.value(data) != _SOUND:
        raise ValueError("the CRC-32C of its index is not the written one")
    index = np.frombuffer(data, "<u8", length // 8).reshape(-1, 2)
    offsets, lengths = index[index[:, 0] != _ABSENT].T
    if ((offsets > start) | (lengths > start - np.minimum(offsets, start)) | (lengths < 6)).any():
        raise ValueError("an inner chunk lies outside it")
    order = np.argsort(offsets)
    if (offsets[order][1:] < (offsets + lengths)[order][:-1]).any():
        raise ValueError("two inner chunks have the same bytes")  # few bytes that claim very many
    return Shard(grid, index, read)


def encode_chunk(values: np.ndarray) -> bytes:
    """A contiguous inner chunk, compressed, with its checksum."""
    from numcodecs import blosc  # tens of ms, which readers of scores need not wait for

    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return with_checksum(blosc.compress(little, b"lz4", 5, blosc.BITSHUFFLE, 0))


def encode_index(lengths: Sequence[int]) -> bytes:
    """The index of a shard whose inner chunks have these lengths, one after the other.

    Absent inner chunks have length 0.
    """
    index = np.empty((len(lengths), 2), "<u8")
    index[:, 0] = np.cumsum([0, *lengths[:-1]])
    index[:, 1] = lengths
    index[index[:, 1] == 0] = _ABSENT
    return with_checksum(index.tobytes())


def with_checksum(data: bytes) -> bytes:
    """The bytes, and their CRC-32C after them."""
    checksum: int = google_crc32c.value(data)
    return data + checksum.to_bytes(CHECKSUM, "little")


def decode(frame: memoryview, into: np.ndarray) -> None:
    """Decode an inner chunk with a verified frame into an array of its shape."""
    from numcodecs import blosc

    blosc.decompress(frame, into)


def inner_bytes(grid: Grid) -> int:
    """Bytes of every inner chunk before compression."""
    return int(np.prod(grid.chunk_shape)) * np.dtype(grid.dtype).itemsize


def blosc_bytes(header: bytes, length: int) -> int | None:
    """The size that a Blosc frame of `length` bytes names for its content; None if it names none.

    Its header has 16 bytes: four of versions and flags, then the sizes of content, block and frame.

    >>> blosc_bytes(bytes.fromhex("02011402" "60000000" "60000000" "30000000"), 48)
    96
    """
    if len(header) < HEADER or int.from_bytes(header[12:16], "little") != length:
        return None
    return int.from_bytes(header[4:8], "little")


def check_frame(header: bytes, length: int, grid: Grid) -> None:
    """Raise ValueError unless a Blosc header names the size of an inner chunk.

    `length` is that of the inner chunk, checksum included.
    """
    size, expected = blosc_bytes(header, length - CHECKSUM), inner_bytes(grid)
    if size != expected:
        claim = "no size" if size is None else f"{size:,} bytes"
        raise ValueError(f"an inner chunk names {claim}; all have {expected:,}")
