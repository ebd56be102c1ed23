"""Codecs of arrays: name and JSON in Zarr's metadata, encoding, decoding, and the claimed size.

A codec is one object here. Readers compare what a frame claims with what it must contain, before
they take memory for it.
"""

from typing import Any, Protocol

import numpy as np

Buffer = bytes | memoryview
MOST = 1024
"""Bytes of values for each byte of an inner chunk. LZ4 gives at most 255."""


class Codec(Protocol):
    """Compresses the values of one chunk into a frame."""

    name: str
    """As in the metadata of Zarr, and in the attribute `codec` of a deposit."""
    header: int
    """Bytes at the start of a frame that `claimed_size` needs."""

    def json(self, item_size: int) -> dict[str, Any]:
        """The metadata for numbers of so many bytes."""

    def encode(self, values: np.ndarray) -> bytes:
        """The frame of contiguous values, as little-endian numbers."""

    def decode(self, frame: Buffer, into: np.ndarray) -> None:
        """Decode a frame, whose claimed size is that of the array."""

    def claimed_size(self, header: bytes, length: int) -> int | None:
        """Bytes of values that a frame of `length` bytes claims; None if it names none."""


class Blosc:
    """LZ4 of shuffled bits in a Blosc frame, version 1."""

    name = "blosc"
    header = 16

    def json(self, item_size: int) -> dict[str, Any]:
        settings = {"typesize": item_size, "cname": "lz4", "clevel": 5, "shuffle": "bitshuffle"}
        return {"name": self.name, "configuration": {**settings, "blocksize": 0}}

    def encode(self, values: np.ndarray) -> bytes:
        from numcodecs import blosc  # tens of ms, which readers of scores need not wait for

        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        return bytes(blosc.compress(little, b"lz4", 5, blosc.BITSHUFFLE, 0))

    def decode(self, frame: Buffer, into: np.ndarray) -> None:
        from numcodecs import blosc

        blosc.decompress(frame, into)

    def claimed_size(self, header: bytes, length: int) -> int | None:
        """See `Codec`. Four bytes of versions and flags, then sizes of content, block and frame.

        >>> Blosc().claimed_size(bytes.fromhex("02011402" "60000000" "60000000" "30000000"), 48)
        96
        """
        if len(header) < self.header or int.from_bytes(header[12:16], "little") != length:
            return None
        return int.from_bytes(header[4:8], "little")


class Zstd:
    """One Zstandard frame of level 1 with a checksum, whose header names its size."""

    name = "zstd"
    header = 18

    def json(self, item_size: int) -> dict[str, Any]:
        return {"name": self.name, "configuration": {"level": 1, "checksum": True}}

    def encode(self, values: np.ndarray) -> bytes:
        from numcodecs import zstd

        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        return bytes(zstd.compress(little, 1, True))

    def decode(self, frame: Buffer, into: np.ndarray) -> None:
        from numcodecs import zstd

        zstd.decompress(frame, into)

    def claimed_size(self, header: bytes, length: int) -> int | None:
        """See `Codec`. RFC 8878, section 3.1.1.1: the size follows window and dictionary.

        >>> Zstd().claimed_size(bytes.fromhex("28b52ffd" "64" "9000"), 23)
        400
        """
        if header[:4] != bytes.fromhex("28b52ffd") or len(header) < 6:
            return None
        flags = header[4]
        is_single = bool(flags & 32)
        width = (int(is_single), 2, 4, 8)[flags >> 6]
        start = 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
        if not width or len(header) < start + width:
            return None
        return int.from_bytes(header[start : start + width], "little") + (256 if width == 2 else 0)


ROWS: Codec = Blosc()
"""Codec of rows, states and heads."""
LOGSUMEXP: Codec = Zstd()
"""Codec of the array `logsumexp`."""


def require_claim(codec: Codec, header: bytes, length: int, expected: int) -> None:
    """Raise ValueError unless a frame of `length` bytes claims the expected size."""
    size = codec.claimed_size(header, length)
    if size != expected:
        claim = "no size" if size is None else f"{size:,} bytes"
        raise ValueError(f"an inner chunk names {claim}; all have {expected:,}")
