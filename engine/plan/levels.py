"""Size of a plan at each keep level."""

from collections.abc import Sequence
from typing import NamedTuple

from logitbank.engine.plan.plan import DepositPlan, head_bytes
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import Dtype, Keep

_LEVELS: tuple[tuple[str, Dtype], ...] = (
    *(("full", "float32"), ("full", "float16"), ("hidden", "float32"), ("hidden", "float16")),
    *(("topk:64", "float16"), ("options", "float16")),
)
"""The levels that are compared, the most complete first."""


class LevelSize(NamedTuple):
    """A keep level, and the size of a plan at this level before compression."""

    keep: Keep
    dtype: Dtype
    bytes: int
    heads: int
    """Bytes of these in LM heads, which hidden states need."""

    def __str__(self) -> str:
        dtype = f" --dtype {self.dtype}" if self.keep.has_full_rows else ""
        return f"--keep {self.keep}{dtype}"


def level_sizes(deposits: Sequence[DepositPlan]) -> list[LevelSize]:
    """Size of these deposits at each level; without `hidden` if the width is unknown."""
    sizes = []
    for name, dtype in _LEVELS:
        keep = Keep.parse(name)
        states = keep.array == "hidden"
        if states and any(d.head is None for d in deposits):
            continue
        rows = sum(d.rows * _row_bytes(d, keep, dtype) for d in deposits)
        heads = head_bytes(deposits) if states else 0
        sizes.append(LevelSize(keep, dtype, rows + heads, heads))
    return sizes


def _row_bytes(deposit: DepositPlan, keep: Keep, dtype: Dtype) -> int:
    head = deposit.head if keep.array == "hidden" else None
    return Layout.plan(
        queries=deposit.layout.queries,
        vocab=deposit.layout.vocab,
        dtype=dtype,
        keep=keep,
        width=None if head is None else head.width,
    ).row_bytes
