"""What a plan takes of the disk at each keep level, and which is the least that loses nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from logitbank.engine.plan.plan import DepositPlan, head_bytes
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import Dtype, Keep
from logitbank.wording import ASKED_LEVELS

AUTO = "auto"
"""In place of a keep level: the least that loses nothing."""
_LEVELS: tuple[tuple[str, Dtype], ...] = (
    *(("full", "float32"), ("full", "float16"), ("hidden", "float32"), ("hidden", "float16")),
    *(("topk:64", "float16"), ("options", "float16")),
)
"""What is offered, the fuller first."""


class KeepRequest(NamedTuple):
    """What of a row is to be kept, as it was asked for."""

    keep: Keep
    dtype: Dtype
    keep_auto: bool
    """Another may be taken that keeps as much and takes less."""


def parse_keep(keep: str, dtype: Dtype | None = None) -> KeepRequest:
    """A level by its name, or `auto`; without a dtype, that in which it is kept as a rule.

    States are float32, as their products err by what they are rounded by, and so is what is to lose
    nothing.

    Raises
    ------
    UsageError
        There is no such level.
    """
    level = Keep("full") if keep == AUTO else Keep.parse(keep, accepted=ASKED_LEVELS)
    exact = keep == AUTO or level.array == "hidden"
    return KeepRequest(level, dtype or ("float32" if exact else "float16"), keep == AUTO)


class LevelSize(NamedTuple):
    """A keep level, and what a plan takes at it before compression."""

    keep: Keep
    dtype: Dtype
    bytes: int
    heads: int
    """Bytes of these that are heads, which states need."""

    def __str__(self) -> str:
        dtype = f" --dtype {self.dtype}" if self.keep.whole_rows else ""
        return f"--keep {self.keep}{dtype}"


def level_sizes(deposits: Sequence[DepositPlan]) -> list[LevelSize]:
    """What these rows take at each level that is offered; at `hidden` where states are known."""
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


def least_lossless(sizes: Sequence[LevelSize], dtype: Dtype = "float32") -> LevelSize | None:
    """The smallest from which every token's log-probability can be had, of those in this dtype.

    In float32 nothing is lost: what comes of states differs from the engine's own by no more than
    the order of its sums.
    """
    whole = [size for size in sizes if size.keep.whole_rows and size.dtype == dtype]
    return min(whole, key=lambda size: size.bytes, default=None)


def _row_bytes(plan: DepositPlan, keep: Keep, dtype: Dtype) -> int:
    head = plan.head if keep.array == "hidden" else None
    return Layout.plan(
        queries=plan.layout.queries,
        vocab=plan.layout.vocab,
        dtype=dtype,
        keep=keep,
        width=None if head is None else head.width,
    ).row_bytes
