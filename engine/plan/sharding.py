"""Divide a plan into equal parts: among the workers of one run, and among the shards of an array.

Every block belongs to exactly one part. Shards do not communicate: which shard runs a row depends
only on the position of its checkpoint in the suite and on the number of the row.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from logitbank.engine.plan.plan import DepositPlan, Plan
from logitbank.errors import UsageError
from logitbank.store.format.layout import MAX_BLOCK_ROWS
from logitbank.store.format.schema import CheckpointId


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A checkpoint, or one of several equal parts of its missing blocks."""

    index: int
    """Index of the checkpoint among those to run."""
    part: int = 0
    parts: int = 1

    def select(self, deposits: Sequence[DepositPlan]) -> tuple[DepositPlan, ...]:
        """The blocks of this part: consecutive blocks, in the order of the deposits.

        Examples
        --------
        >>> from logitbank.store.format.schema import CheckpointId, Keep
        >>> from logitbank.store.format.layout import Layout
        >>> layout = Layout(80, 10, "float16", Keep("options"), 8)
        >>> half = DepositPlan(CheckpointId("m"), "q", layout, (5, 6, 7, 8, 9))
        >>> [[d.blocks for d in WorkUnit(0, part, 2).select([half])] for part in (0, 1)]
        [[(5, 6)], [(7, 8, 9)]]
        """
        blocks = sum(len(deposit.blocks) for deposit in deposits)
        first, last = (blocks * part // self.parts for part in (self.part, self.part + 1))
        selected = []
        for deposit in deposits:
            selected.append(replace(deposit, blocks=deposit.blocks[max(0, first) : max(0, last)]))
            first, last = first - len(deposit.blocks), last - len(deposit.blocks)
        return tuple(deposit for deposit in selected if deposit.blocks)


def work_units(checkpoints: int, workers: int) -> tuple[WorkUnit, ...]:
    """Whole checkpoints as long as every worker gets one, and equal parts of the remaining ones.

    Each part costs a load of the weights, so there are only as many parts as equal loads need.

    Examples
    --------
    >>> [(unit.index, f"{unit.part}/{unit.parts}") for unit in work_units(3, 2)]
    [(0, '0/1'), (1, '0/1'), (2, '0/2'), (2, '1/2')]
    """
    divided = checkpoints % workers
    whole = checkpoints - divided
    parts = workers // math.gcd(workers, divided)
    units = [WorkUnit(index) for index in range(whole)]
    units += [WorkUnit(i, part, parts) for i in range(whole, checkpoints) for part in range(parts)]
    return tuple(units)


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several runs, on machines that do not communicate, that fill one bank."""

    index: int
    """Number of the shard, from 0."""
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `i/n`.

        Raises
        ------
        UsageError
            The text is not `i/n` with 0 ≤ i < n.
        """
        match = re.fullmatch(r"(\d{1,6})/([1-9]\d{0,5})", text)
        if match is None or int(match[1]) >= int(match[2]):
            raise UsageError(f"Shard {text!r} is invalid: use i/n with 0 ≤ i < n, such as 0/8.")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_slurm(cls, environment: Mapping[str, str]) -> Self | None:
        """The shard of this task of a SLURM array; None outside an array.

        Raises
        ------
        UsageError
            The array omits some numbers, so that nobody would run their shards.
        """
        try:
            task, first, last, count = (
                int(environment[f"SLURM_ARRAY_TASK_{name}"])
                for name in ("ID", "MIN", "MAX", "COUNT")
            )
        except (KeyError, ValueError):
            return None
        if last - first + 1 != count:
            raise UsageError(
                f"The SLURM array has {count} tasks numbered from {first} to {last}, so some "
                "numbers are missing. Pass --shard i/n to each task."
            )
        return cls(task - first, count)

    def select(self, deposit: DepositPlan, index: int, checkpoints: int) -> DepositPlan:
        """The blocks of a deposit that this shard runs.

        `index` is the position of the checkpoint in a suite of `checkpoints` checkpoints. Shards
        get whole checkpoints as long as every shard gets one. The others are divided equally, and
        only after multiples of 4,096 rows. Block sizes are powers of two up to that, so machines
        that plan other blocks agree.

        Examples
        --------
        >>> from logitbank.store.format.schema import CheckpointId, Keep
        >>> from logitbank.store.format.layout import Layout
        >>> layout = Layout(4 * 4096, 10, "float16", Keep("options"), 2048)
        >>> deposit = DepositPlan(CheckpointId("m"), "q", layout, (1, 2, 3, 4, 5, 6))
        >>> [Shard(i, 4).select(deposit, 0, 1).blocks for i in range(4)]
        [(1,), (2, 3), (4, 5), (6,)]
        """
        divided = checkpoints % self.count
        whole = checkpoints - divided
        units = math.ceil(deposit.layout.queries / MAX_BLOCK_ROWS)

        def is_selected(block: int) -> bool:
            if index < whole:
                return index % self.count == self.index
            unit = (index - whole) * units + deposit.layout.rows(block).start // MAX_BLOCK_ROWS
            return unit * self.count // (divided * units) == self.index

        return replace(deposit, blocks=tuple(filter(is_selected, deposit.blocks)))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def select_shard(plan: Plan, shard: Shard, suite: Sequence[CheckpointId]) -> Plan:
    """The part of a plan that a shard runs, with the missing rows of all shards."""
    indices = {checkpoint: index for index, checkpoint in enumerate(suite)}
    deposits = (shard.select(d, indices[d.checkpoint], len(suite)) for d in plan.deposits)
    return replace(
        plan,
        deposits=tuple(deposit for deposit in deposits if deposit.blocks),
        shard=str(shard),
        missing_rows=plan.rows,
        missing_checkpoints=len(plan.to_run),
    )
