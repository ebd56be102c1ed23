"""Bytes of a checkpoint's weights in an engine, by the headers of its files."""

import math
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.backends.precision import value_bytes
from logitbank.engine.backends.protocol import ComputeDtype
from logitbank.engine.weights.weights import tensor_shapes


class WeightBytes(NamedTuple):
    """Bytes of a checkpoint's tensors in the dtype of an engine."""

    total: int
    largest: int


NO_WEIGHTS = WeightBytes(0, 0)


def weight_bytes(folder: Path, compute_dtype: ComputeDtype) -> WeightBytes:
    """Bytes of the tensors of a checkpoint in an engine."""
    sizes = [math.prod(shape) for shape in tensor_shapes(folder).values()]
    one = value_bytes(compute_dtype)
    return WeightBytes(one * sum(sizes), one * max(sizes, default=0))
