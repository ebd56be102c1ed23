"""Numbers as arrays store them (bfloat16 as its bits), and the normalisation of rows."""

from typing import Literal

import numpy as np

from logitbank.store.format.schema import Dtype

BFLOAT16_BITS: Literal["uint16"] = "uint16"
GridDtype = Literal["float16", "float32", "uint16"]
STORED_AS: dict[Dtype, GridDtype] = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": BFLOAT16_BITS,
}
"""Dtype of the array that stores numbers of a dtype."""
_IN_CACHE = 2**15
"""Numbers that stay in a core's cache between two steps of a conversion."""
_ROWS_IN_CACHE = 4
"""Rows that stay in a core's cache between two steps."""
_SIGN_AND_NUMBER = np.int32(-0x70002000)
"""Bits of float32 that take the sign, exponent and fraction of float16."""


def as_float32(values: np.ndarray) -> np.ndarray:
    """Finite numbers as float32, without loss; uint16 are bits of bfloat16."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    if values.dtype != np.float16:
        return values.astype(np.float32, copy=False)
    # float16 has 5 bits of exponent, float32 has 8. Its bits, moved to the positions of float32,
    # are a number 2^-112 times as large. NumPy's conversion takes 2.3 times as long.
    wide = np.empty(values.shape, np.float32)
    some = max(1, _IN_CACHE // max(1, values.shape[-1]))
    for start in range(0, len(values), some):
        part = wide[start : start + some]
        bits = part.view(np.int32)
        np.copyto(bits, values[start : start + some].view(np.int16))  # with the sign at the top
        bits <<= 13
        bits &= _SIGN_AND_NUMBER
        part *= np.float32(2.0**112)
    return wide


def logsumexp(rows: np.ndarray) -> np.ndarray:
    """ln Σ exp(x) over the last axis, (…, v) to (…), in the dtype that rows have.

    −inf adds nothing; a row of only −inf gives NaN.

    >>> logsumexp(np.array([[1000.0, 1000.0], [0.0, -np.inf]])).round(4).tolist()
    [1000.6931, 0.0]
    """
    highest = rows.max(axis=-1, keepdims=True)
    total: np.ndarray = highest[..., 0] + np.log(np.exp(rows - highest).sum(axis=-1))
    return total


def subtract_logsumexp(logits: np.ndarray, logsumexp: np.ndarray) -> np.ndarray:
    """Subtract a log-sum-exp (q,) float64 from logits (q, v) float32, row by row, in place.

    It subtracts the float32 part and then the rest: as exact as float64, whatever the size of the
    logits, without a copy of twice the size.
    """
    high = logsumexp.astype(np.float32)[:, None]
    low = (logsumexp - high[:, 0]).astype(np.float32)[:, None]
    for start in range(0, len(logits), _ROWS_IN_CACHE):
        rows = slice(start, start + _ROWS_IN_CACHE)
        part = logits[rows]
        part -= high[rows]
        part -= low[rows]
    return logits


def normalise_rows(rows: np.ndarray) -> np.ndarray:
    """x − ln Σ exp(x) of each row x of (q, v), with the sum in float64; −inf stays −inf.

    The result is float32.
    """
    out = np.empty(rows.shape, np.float32)
    for i, row in enumerate(rows):  # in float64 one by one: all at once would take twice the memory
        exact = row.astype(np.float64)
        out[i] = exact - logsumexp(exact)
    return out


def as_stored(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Float32 numbers without NaN in the dtype of an array, rounded to nearest, ties to even.

    Numbers that are too large become infinite.
    """
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # Half of the removed part, plus one if the last remaining bit is odd. Carries go into the
    # exponent, as they must.
    halves = np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    return ((bits + halves) >> 16).astype(np.uint16)
