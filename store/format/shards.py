"""Bytes of one shard: inner chunks in frames of a codec, then an index, each with its CRC-32C.

Readers compare the size of a shard with the committed one and check each CRC-32C before they
decode. Hostile shards exist also: a small frame can contain 2 GB. All inner chunks of a bank have
one size, so a frame that names another size, or none, is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np

from logitbank.store.files.objects import Digest, compute_digest
from logitbank.store.format.codecs import MOST, ROWS, require_claim
from logitbank.store.format.grid import Grid

_ABSENT = np.uint64(2**64 - 1)
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

    def decode(self, chunk: int, into: np.ndarray) -> None:
        """Decode an inner chunk, verified, into an array of its shape, or raise ValueError."""
        offset, length = (int(value) for value in self.index[chunk])
        if offset == _ABSENT:
            raise ValueError(f"inner chunk {chunk} is missing")
        frame = self.read(offset, length)
        require_claim(ROWS, frame[: ROWS.header], length - CHECKSUM, inner_bytes(self.grid))
        if len(frame) != length or google_crc32c.value(frame) != _SOUND:
            raise ValueError(f"the CRC-32C of inner chunk {chunk} is not the written one")
        ROWS.decode(memoryview(frame)[:-CHECKSUM], into)

    def require_claims(self) -> None:
        """Raise ValueError if an inner chunk claims another size than all have."""
        for offset, length in self.index[self.index[:, 0] != _ABSENT].tolist():
            header = self.read(offset, min(length, ROWS.header))
            require_claim(ROWS, header, length - CHECKSUM, inner_bytes(self.grid))


def _index_bytes(grid: Grid) -> int:
    (rows, tokens), (height, width) = grid.shard_shape, grid.chunk_shape
    return 16 * (rows // height) * (tokens // width)


def shard(read: Read, size: int, committed: Digest, grid: Grid, rows: int | None = None) -> Shard:
    """A shard of `size` bytes with verified size and index, or ValueError.

    `rows` is the number of rows of its block, by default those of a whole one. Inner chunks that
    have some of them must be present.
    """
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
    height = grid.chunk_shape[0]
    needed = -(-(grid.block_rows if rows is None else rows) // height)
    absent = np.flatnonzero(
        index[: needed * (len(index) * height // grid.block_rows), 0] == _ABSENT
    )
    if len(absent):
        raise ValueError(f"inner chunk {absent[0]} is missing")
    offsets, lengths = index[index[:, 0] != _ABSENT].T
    if ((offsets > start) | (lengths > start - np.minimum(offsets, start)) | (lengths < 6)).any():
        raise ValueError("an inner chunk lies outside it")
    order = np.argsort(offsets)
    if (offsets[order][1:] < (offsets + lengths)[order][:-1]).any():
        raise ValueError("two inner chunks have the same bytes")  # few bytes that claim very many
    if (lengths * np.uint64(MOST) < inner_bytes(grid)).any():
        raise ValueError(f"an inner chunk names more than {MOST:,} times its bytes")
    return Shard(grid, index, read)


def encode_chunk(values: np.ndarray) -> bytes:
    """A contiguous inner chunk, compressed, with its checksum."""
    return with_checksum(ROWS.encode(values))


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


def inner_bytes(grid: Grid) -> int:
    """Bytes of every inner chunk before compression."""
    return int(np.prod(grid.chunk_shape)) * np.dtype(grid.dtype).itemsize
