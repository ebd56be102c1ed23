"""Log-probabilities read at a URL, by ranges, through Zarr; what a stranger sends is checked first.

With Zarr's own pipeline: that of zarrs asks for each object's size, and makes connections of its
own for every array.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, RangeByteRequest
from zarr.storage import ObjectStore, StorePath

from logitbank.store import zarrays
from logitbank.store.schema import Layout
from logitbank.store.shards import HEADER, check_frame, inner_bytes

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer, BufferPrototype


_ABSENT = np.uint64(2**64 - 1)


class _Checked(ObjectStore[Any]):
    """Objects of one array: no frame is given on that would decompress to another size."""

    def __init__(self, store: Any, layout: Layout) -> None:
        super().__init__(store, read_only=True)
        self._layout = layout
        rows, tokens = (s // c for s, c in zip(layout.shard_shape, layout.chunk_shape, strict=True))
        self._chunks = rows * tokens
        expected = inner_bytes(layout)
        self._longest = expected + expected // 128 + 1024  # what a codec may add

    async def get(
        self, key: str, prototype: "BufferPrototype", byte_range: ByteRequest | None = None
    ) -> "Buffer | None":
        if byte_range is None:
            return await self._whole(key, prototype)
        if isinstance(byte_range, RangeByteRequest):
            if byte_range.end - byte_range.start > self._longest:
                raise ValueError(f"an inner chunk of {key} is longer than it can be")
            found = await super().get(key, prototype, byte_range)
            if found is not None:
                check_frame(found[:HEADER].to_bytes(), len(found), self._layout)
            return found
        return await super().get(key, prototype, byte_range)

    async def _whole(self, key: str, prototype: "BufferPrototype") -> "Buffer | None":
        import obstore

        try:
            answer = await obstore.get_async(self.store, key)
        except FileNotFoundError:
            return None
        if answer.meta["size"] > (self._longest + 16) * self._chunks + 4:
            raise ValueError(f"{key} is longer than it can be")
        data = bytes(await answer.bytes_async())
        self._check(key, data)
        return prototype.buffer.from_bytes(data)

    def _check(self, key: str, shard: bytes) -> None:
        """Every inner chunk that the index at the end of a shard names."""
        start = len(shard) - 16 * self._chunks - 4
        if start < 0:
            raise ValueError(f"{key} is shorter than its index")
        index = np.frombuffer(shard, "<u8", 2 * self._chunks, start).reshape(-1, 2)
        for offset, length in index[index[:, 0] != _ABSENT].tolist():
            if offset + length > start:
                raise ValueError(f"an inner chunk of {key} lies outside it")
            check_frame(shard[offset : offset + HEADER], length, self._layout)


def remote_array(store: Any, path: str, layout: Layout) -> "zarr.Array[Any]":
    """The array at `path` of an obstore store, with the metadata that its layout has."""
    metadata = json.loads(zarrays.logprobs_metadata(layout, (layout.queries, layout.vocab)))
    return zarr.Array.from_dict(StorePath(_Checked(store, layout), path), metadata)
