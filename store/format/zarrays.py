"""Zarr v3 metadata of format 1 as plain JSON; all keys are in the Zarr v3 specification."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from logitbank.store.files.documents import json_bytes, signed
from logitbank.store.format.codecs import LOGSUMEXP, ROWS, require_claim
from logitbank.store.format.grid import Grid
from logitbank.store.format.layout import Layout
from logitbank.store.format.numbers import BFLOAT16_BITS
from logitbank.store.format.schema import FORMAT_VERSION, RowArray
from logitbank.store.format.shards import CHECKSUM, with_checksum

ATTRIBUTES = ("attributes", "logitbank")
"""Members of `zarr.json` that lead to the attributes of a bank or deposit and their digest."""
AXES: Mapping[RowArray, tuple[str, str]] = {
    "logprobs": ("query", "token"),
    "hidden": ("query", "entry"),
}
GROUP = json_bytes({"zarr_format": 3, "node_type": "group", "attributes": {}})
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_CRC32C = {"name": "crc32c"}


def root_metadata(attributes: dict[str, Any]) -> bytes:
    signed_part = {"format": FORMAT_VERSION, **attributes}
    group = {"zarr_format": 3, "node_type": "group", "attributes": {"logitbank": signed_part}}
    return signed(group, signed_part)


def deposit_metadata(attributes: dict[str, Any], layout: Layout) -> bytes:
    """A deposit's zarr.json, with the metadata of its arrays."""
    return group_metadata(attributes, array_metadata(layout))


def group_metadata(attributes: dict[str, Any], arrays: Mapping[str, bytes]) -> bytes:
    """zarr.json of a group with attributes and the metadata of its arrays.

    With these, Zarr reads one file. Otherwise it lists the folder and warns of each other file.
    """
    signed_part = {**attributes}
    group = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"logitbank": signed_part},
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": {name: json.loads(data) for name, data in arrays.items()},
        },
    }
    return signed(group, signed_part)


def array_metadata(layout: Layout) -> dict[str, bytes]:
    """zarr.json of each array of a deposit, by the array's name."""
    arrays = {"logsumexp": _logsumexp(layout.queries)}
    if layout.grid is not None and (name := layout.keep.array) is not None:
        arrays[name] = rows_metadata(layout.grid, AXES[name])
    return arrays


@lru_cache(maxsize=64)  # each read of rows compares it: 0.3 ms
def rows_metadata(grid: Grid, names: tuple[str, str]) -> bytes:
    """zarr.json of an array of rows, one shard a block; `names` are those of its axes."""
    inner = {
        "chunk_shape": list(grid.chunk_shape),
        "codecs": [_BYTES, ROWS.json(np.dtype(grid.dtype).itemsize), _CRC32C],
        "index_codecs": [_BYTES, _CRC32C],
        "index_location": "end",
    }
    return _array(
        grid.shape,
        chunk=grid.shard_shape,
        dtype=grid.dtype,
        codecs=[{"name": "sharding_indexed", "configuration": inner}],
        dimensions=names,
    )


def _logsumexp(queries: int) -> bytes:
    return _array(
        (queries,),
        chunk=(queries,),
        dtype="float32",
        codecs=[_BYTES, LOGSUMEXP.json(4), _CRC32C],
        dimensions=("query",),
    )


def bias_metadata(outputs: int) -> bytes:
    """zarr.json of the bias of a head."""
    return _array(
        (outputs,),
        chunk=(outputs,),
        dtype="float32",
        codecs=[_BYTES, _CRC32C],
        dimensions=("token",),
    )


def _array(
    shape: tuple[int, ...],
    *,
    chunk: tuple[int, ...],
    dtype: str,
    codecs: list[dict[str, Any]],
    dimensions: tuple[str, ...],
) -> bytes:
    return json_bytes(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0 if dtype == BFLOAT16_BITS else "NaN",
            "codecs": codecs,
            "attributes": {},
            "dimension_names": list(dimensions),
            "storage_transformers": [],
        }
    )


def logsumexp_chunk(values: np.ndarray) -> bytes:
    """Bytes of the one chunk of the array `logsumexp`, of values (q,)."""
    return with_checksum(LOGSUMEXP.encode(values.astype(np.float32)))


def read_logsumexp(chunk: bytes, queries: int) -> np.ndarray:
    """The values (q,) float32 of the one chunk of the array `logsumexp`, or ValueError."""
    frame, values = chunk[:-CHECKSUM], np.empty(queries, np.dtype("<f4"))
    require_claim(LOGSUMEXP, frame[: LOGSUMEXP.header], len(frame), values.nbytes)
    if with_checksum(frame) != chunk:
        raise ValueError("its CRC-32C is not the written one")
    try:
        LOGSUMEXP.decode(frame, values)
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return values


def bias_chunk(values: np.ndarray) -> bytes:
    """Bytes of the one chunk of the array `bias` of a head, of values (outputs,)."""
    return with_checksum(values.astype("<f4").tobytes())
