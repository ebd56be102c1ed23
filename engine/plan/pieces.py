"""Who runs what: checkpoints, and parts of the last ones, dealt to workers. Pure arithmetic."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from logitbank.engine.plan.plan import DepositPlan
from logitbank.errors import UsageError


@dataclass(frozen=True, slots=True)
class Piece:
    """A checkpoint, or one of several equal parts of its blocks.

    Runs that know nothing of each other go by the blocks' numbers (`of`), as each finds others
    missing; one that deals them to its own workers goes by what is missing (`share`).
    """

    index: int
    """Index of the checkpoint among those that were dealt."""
    part: int = 0
    parts: int = 1

    def of(self, deposit: DepositPlan) -> DepositPlan:
        """The blocks of a deposit that are this piece's, by their numbers."""
        blocks = (b for b in deposit.blocks if b * self.parts // deposit.layout.blocks == self.part)
        return replace(deposit, blocks=tuple(blocks))

    def share(self, deposits: Sequence[DepositPlan]) -> tuple[DepositPlan, ...]:
        """An equal run for each part of the blocks to do, those of one deposit after the other.

        Examples
        --------
        >>> from logitbank.store.format.schema import CheckpointId, Keep
        >>> from logitbank.store.format.layout import Layout
        >>> layout = Layout(80, 10, "float16", Keep("options"), 8)
        >>> half = DepositPlan(CheckpointId("m"), "q", layout, (5, 6, 7, 8, 9))
        >>> [[d.blocks for d in Piece(0, part, 2).share([half])] for part in (0, 1)]
        [[(5, 6)], [(7, 8, 9)]]
        """
        blocks = sum(len(deposit.blocks) for deposit in deposits)
        first, last = (blocks * part // self.parts for part in (self.part, self.part + 1))
        taken = []
        for deposit in deposits:
            taken.append(replace(deposit, blocks=deposit.blocks[max(0, first) : max(0, last)]))
            first, last = first - len(deposit.blocks), last - len(deposit.blocks)
        return tuple(deposit for deposit in taken if deposit.blocks)


def pieces(checkpoints: int, workers: int) -> tuple[Piece, ...]:
    """Whole checkpoints while there are enough for all workers; the remainder in parts.

    Each part costs a swap of weights, so no more are made than let all workers end together.

    Examples
    --------
    >>> [(p.index, f"{p.part}/{p.parts}") for p in pieces(3, 2)]
    [(0, '0/1'), (1, '0/1'), (2, '0/2'), (2, '1/2')]
    """
    numbered = (_pieces_of(i, checkpoints, workers) for i in range(checkpoints))
    return tuple(piece for own in numbered for _, piece in own)


def _pieces_of(index: int, checkpoints: int, workers: int) -> list[tuple[int, Piece]]:
    """The pieces of one checkpoint, each with its number among those of all."""
    rest = checkpoints % workers
    whole = checkpoints - rest
    if index < whole:
        return [(index, Piece(index))]
    parts = workers // math.gcd(workers, rest)
    first = whole + (index - whole) * parts
    return [(first + part, Piece(index, part, parts)) for part in range(parts)]


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several runs, on machines that know nothing of each other, that fill one bank."""

    index: int
    """Number of the shard, from 0."""
    count: int
    round: str = ""
    """Names the runs that start together, such as a SLURM array: each deals the rest anew."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """`i/n` with i from 0 to n − 1.

        Raises
        ------
        UsageError
            It is something else.
        """
        match = re.fullmatch(r"(\d{1,6})/([1-9]\d{0,5})", text)
        if match is None or int(match[1]) >= int(match[2]):
            raise UsageError(f"shard {text!r} is not i/n with i from 0 to n − 1, such as 0/8")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_slurm(cls, environment: Mapping[str, str]) -> Self | None:
        """This task's share of a SLURM array; None outside one.

        Raises
        ------
        UsageError
            The array leaves out numbers, so that nobody would do their part.
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
                f"the SLURM array has {count} tasks from {first} to {last}, so some numbers are "
                "left out; name each task's part with --shard i/n"
            )
        return cls(task - first, count, environment.get("SLURM_ARRAY_JOB_ID", ""))

    def of(
        self, deposits: Sequence[DepositPlan], index: int, checkpoints: int
    ) -> list[DepositPlan]:
        """This shard's blocks of the suite's checkpoint `index`, by their numbers alone."""
        dealt = _pieces_of(index, checkpoints, self.count)
        share = [piece for at, piece in dealt if at % self.count == self.index]
        parts = [piece.of(deposit) for piece in share for deposit in deposits]
        return [deposit for deposit in parts if deposit.blocks]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"
