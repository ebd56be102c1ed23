"""Deal what a bank lacks to runs that know nothing of each other: equal rows, and no gap.

What a run finds missing depends on when it looks. So the first one writes down, beside the bank,
who does which rows, and the others go by that; what the bank has by then is not done again.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

from logitbank.engine.backends.contexts import context_keys
from logitbank.engine.plan.plan import DepositPlan
from logitbank.errors import DamagedError, UsageError
from logitbank.store.files import documents, locks, objects, verified
from logitbank.store.format.schema import CheckpointId, json_digest

if TYPE_CHECKING:
    from logitbank.engine.plan.extraction import Extraction, Prepared


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A checkpoint, or one of several equal parts of its blocks.

    Runs that know nothing of each other go by the blocks' numbers (`of`), as each finds others
    missing; one that deals them to its own workers goes by what is missing (`share`).
    """

    index: int
    """Index of the checkpoint among those that were divide_rows."""
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
        >>> [[d.blocks for d in WorkUnit(0, part, 2).share([half])] for part in (0, 1)]
        [[(5, 6)], [(7, 8, 9)]]
        """
        blocks = sum(len(deposit.blocks) for deposit in deposits)
        first, last = (blocks * part // self.parts for part in (self.part, self.part + 1))
        taken = []
        for deposit in deposits:
            taken.append(replace(deposit, blocks=deposit.blocks[max(0, first) : max(0, last)]))
            first, last = first - len(deposit.blocks), last - len(deposit.blocks)
        return tuple(deposit for deposit in taken if deposit.blocks)


def work_units(checkpoints: int, workers: int) -> tuple[WorkUnit, ...]:
    """Whole checkpoints while there are enough for all workers; the remainder in parts.

    Each part costs a swap of weights, so no more are made than let all workers end together.

    Examples
    --------
    >>> [(p.index, f"{p.part}/{p.parts}") for p in work_units(3, 2)]
    [(0, '0/1'), (1, '0/1'), (2, '0/2'), (2, '1/2')]
    """
    numbered = (_units_of(i, checkpoints, workers) for i in range(checkpoints))
    return tuple(unit for own in numbered for _, unit in own)


def _units_of(index: int, checkpoints: int, workers: int) -> list[tuple[int, WorkUnit]]:
    """The pieces of one checkpoint, each with its number among those of all."""
    rest = checkpoints % workers
    whole = checkpoints - rest
    if index < whole:
        return [(index, WorkUnit(index))]
    parts = workers // math.gcd(workers, rest)
    first = whole + (index - whole) * parts
    return [(first + part, WorkUnit(index, part, parts)) for part in range(parts)]


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
        divide_rows = _units_of(index, checkpoints, self.count)
        share = [unit for at, unit in divide_rows if at % self.count == self.index]
        parts = [unit.of(deposit) for unit in share for deposit in deposits]
        return [deposit for deposit in parts if deposit.blocks]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


LOAD = 0.1
"""What loading a checkpoint costs, about, as a share of its rows. Shares that differ by less are
equal."""

Owners = Mapping[tuple[str, str], Sequence[tuple[int, int, int]]]
"""Spans by checkpoint and query set: first row, row after the last, and the share that does
them."""


def divide_rows(missing: Sequence[DepositPlan], count: int) -> list[list[DepositPlan]]:
    """Equal runs of rows, in order; cut inside a checkpoint only where its end is too far away.

    Examples
    --------
    >>> from logitbank.store.format.schema import CheckpointId, Keep
    >>> from logitbank.store.format.layout import Layout
    >>> layout = Layout(80, 10, "float16", Keep("options"), 8)
    >>> steps = [CheckpointId("m", step=step) for step in (1, 2, 3)]
    >>> plans = [DepositPlan(step, "q", layout, tuple(range(10))) for step in steps]
    >>> [[(d.checkpoint.step, d.rows) for d in share] for share in divide_rows(plans, 2)]
    [[(1, 80), (2, 40)], [(2, 40), (3, 80)]]
    """
    blocks = [(plan, block) for plan in missing for block in plan.blocks]
    before = [0, *accumulate(len(plan.layout.rows(block)) for plan, block in blocks)]
    edges = [
        i
        for i in range(len(blocks) + 1)
        if i in (0, len(blocks)) or blocks[i][0].checkpoint != blocks[i - 1][0].checkpoint
    ]
    cuts = [_cut(before, edges, before[-1] * i / count) for i in range(count + 1)]
    return [
        [
            replace(plan, blocks=tuple(block for _, block in group))
            for plan, group in groupby(blocks[first:last], key=lambda pair: pair[0])
        ]
        for first, last in pairwise(cuts)
    ]


def _cut(before: Sequence[int], edges: Sequence[int], target: float) -> int:
    """How many blocks come before a cut at `target` rows, or at a checkpoint's end near there.

    `before` has the rows before each block, `edges` the blocks at which checkpoints begin.
    """

    def distance(block: int) -> float:
        return abs(before[block] - target)

    at = bisect_left(before, target)
    nearest = min(max(0, at - 1), at, key=distance)
    end = bisect_left(edges, at)
    first, last = edges[max(0, end - 1)], edges[end]
    edge = min(first, last, key=distance)
    return edge if distance(edge) <= LOAD * (before[last] - before[first]) else nearest


def own_shard(
    bank: Path, prepared: "Prepared", extraction: "Extraction", shard: Shard, *, dry_run: bool
) -> "Prepared":
    """What is this run's of all that the bank lacks, by what the shares have agreed on.

    Raises
    ------
    DamagedError
        What they have written down is not what was written.
    """
    missing = prepared.plan.deposits
    file = agreement_path(bank, prepared, extraction, shard)
    owners = _agreed(file, missing, shard, dry_run=dry_run) if missing else {}
    deposits = blocks_of_shard(missing, owners, shard, [c.id for c in extraction.suite.checkpoints])
    plan = replace(
        prepared.plan,
        deposits=deposits,
        shard=str(shard),
        missing_rows=prepared.plan.rows,
        missing_checkpoints=len(prepared.plan.to_run),
    )
    return replace(prepared, plan=plan)


def blocks_of_shard(
    missing: Sequence[DepositPlan], owners: Owners, shard: Shard, suite: Sequence[CheckpointId]
) -> tuple[DepositPlan, ...]:
    """What is this share's of what the bank lacks now.

    Rows without an owner are those that a repair dropped later: their blocks go by number.
    """
    indices = {checkpoint: index for index, checkpoint in enumerate(suite)}
    plans = []
    for plan in missing:
        spans = owners.get((plan.checkpoint.path, plan.query_set), ())
        blocks = set(_overlapping(plan, [span for span in spans if span[2] == shard.index]))
        unowned = tuple(sorted(set(plan.blocks) - set(_overlapping(plan, spans))))
        rest = replace(plan, blocks=unowned)
        for part in shard.of([rest], indices[plan.checkpoint], len(indices)):
            blocks |= set(part.blocks)
        if blocks:
            plans.append(replace(plan, blocks=tuple(sorted(blocks))))
    return tuple(plans)


def agreement_path(
    bank: Path, prepared: "Prepared", extraction: "Extraction", shard: Shard
) -> Path:
    """Where shares of one extraction write down who does what: beside the bank, as its log is.

    By name it is theirs alone: of as many shares that start together, the same checkpoints and the
    same queries, wherever the bank has them.
    """
    sets = prepared.requested.query_sets
    queries = [sets[name].queries[row] for name, row in prepared.requested.placement.places]
    content = {
        "shares": shard.count,
        "round": shard.round,
        "checkpoints": [c.id.path for c in extraction.suite.checkpoints],
        "queries": sorted(map(repr, context_keys(queries))),
    }
    where = bank.resolve()
    return where.with_name(f"{where.name}.shares-{json_digest(content)[:12]}.json")


def _agreed(file: Path, missing: Sequence[DepositPlan], shard: Shard, *, dry_run: bool) -> Owners:
    if file.exists() or not dry_run:
        file.parent.mkdir(parents=True, exist_ok=True)
        with locks.locked(file.with_name(f".{file.name}.lock")):
            if not file.exists():
                objects.write_new(file, _document(divide_rows(missing, shard.count)))
            return _read(file)
    return owners_of(spans_of(divide_rows(missing, shard.count)))


def _document(shares: Sequence[Sequence[DepositPlan]]) -> bytes:
    content: dict[str, object] = {"rows": spans_of(shares)}
    return documents.signed(content, content)


def spans_of(shares: Sequence[Sequence[DepositPlan]]) -> list[list[object]]:
    """Checkpoint, query set, first row, row after the last, share: runs of blocks as one."""
    spans: list[list[object]] = []
    for index, plans in enumerate(shares):
        for plan in plans:
            for block in plan.blocks:
                rows, place = plan.layout.rows(block), [plan.checkpoint.path, plan.query_set]
                last = spans[-1] if spans else []
                if [*last[:2], *last[3:]] == [*place, rows.start, index]:
                    last[3] = rows.stop
                else:
                    spans.append([*place, rows.start, rows.stop, index])
    return spans


def _read(file: Path) -> Owners:
    try:
        return owners_of(verified.document(file)["rows"])
    except DamagedError as error:
        raise DamagedError(
            f"{file} is not what the shares of this extraction wrote there; remove it when none of"
            " them runs, and they deal anew"
        ) from error


def owners_of(spans: Sequence[Sequence[object]]) -> Owners:
    owners: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for checkpoint, query_set, first, stop, share in spans:
        place = (str(checkpoint), str(query_set))
        owners.setdefault(place, []).append((int(str(first)), int(str(stop)), int(str(share))))
    return owners


def _overlapping(plan: DepositPlan, spans: Collection[tuple[int, int, int]]) -> list[int]:
    """Blocks with a row in one of the spans, whatever the size of the blocks they were made of."""
    return [
        block
        for block in plan.blocks
        for rows in [plan.layout.rows(block)]
        if any(first < rows.stop and rows.start < stop for first, stop, _ in spans)
    ]
