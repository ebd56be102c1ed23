"""In which precision Triton multiplies float32 numbers; to be set before anything imports it."""

from collections.abc import Mapping

from logitbank.errors import UsageError

TRITON = "TRITON_F32_DEFAULT"
ASKED = "LOGITBANK_TRITON_F32"
"""What a user sets who wants another; Triton's own variable may be left over from other work."""
_KNOWN = ("ieee", "tf32x3", "tf32")


def triton_precision(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment in which Triton's products of float32 are float32.

    vLLM's attention kernels leave the precision of their products to Triton, whose default on a GPU
    with tensor cores is TF32: ten bits of each operand. So are those of its batch-invariant layers.

    Raises
    ------
    UsageError
        Another precision is asked for, and Triton has none of that name.

    Examples
    --------
    >>> triton_precision({"TRITON_F32_DEFAULT": "tf32"})
    {'TRITON_F32_DEFAULT': 'ieee'}
    >>> triton_precision({"LOGITBANK_TRITON_F32": "tf32x3"})
    {'TRITON_F32_DEFAULT': 'tf32x3'}
    """
    precision = environment.get(ASKED) or "ieee"
    if precision not in _KNOWN:
        raise UsageError(f"{ASKED} is {precision!r}; use {', '.join(_KNOWN[:-1])} or {_KNOWN[-1]}")
    return {TRITON: precision}
