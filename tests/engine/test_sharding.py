"""Work units and shards: every block exactly once, for any number of workers and runs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitbank.engine.plan.plan import DepositPlan, Plan
from logitbank.engine.plan.sharding import Shard, WorkUnit, select_shard, work_units
from logitbank.errors import UsageError
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId, Keep

pytestmark = pytest.mark.numerical


def plan(step: int, blocks: int, missing: set[int]) -> DepositPlan:
    layout = Layout(blocks * 4, 10, "float16", Keep("options"), 4)
    return DepositPlan(CheckpointId("m", step=step), "q", layout, tuple(sorted(missing)))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.data())
def test_each_missing_block_is_in_one_work_unit(
    checkpoints: int, workers: int, blocks: int, data: st.DataObject
) -> None:
    missing = data.draw(st.sets(st.integers(0, blocks - 1)))
    plans = [plan(i, blocks, missing) for i in range(checkpoints)]
    found = [
        (unit.index, block)
        for unit in work_units(checkpoints, workers)
        for deposit in unit.select([plans[unit.index]])
        for block in deposit.blocks
    ]
    assert sorted(found) == [(i, b) for i in range(checkpoints) for b in sorted(missing)]


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 29)), min_size=1, max_size=4), st.integers(1, 12))
def test_what_is_left_of_a_checkpoint_is_shared_equally(
    missing: list[set[int]], parts: int
) -> None:
    """Whichever blocks are committed, and in however many deposits: none has two more."""
    plans = [plan(0, 30, each) for each in missing]
    shares = [WorkUnit(0, part, parts).select(plans) for part in range(parts)]
    sizes = [sum(len(deposit.blocks) for deposit in share) for share in shares]
    assert sum(sizes) == sum(map(len, missing))
    assert max(sizes) - min(sizes) <= 1
    assert all(deposit.blocks for share in shares for deposit in share)


SIZES = (1024, 2048, 4096)


def sized(step: int, rows: int, size: int) -> DepositPlan:
    layout = Layout(rows, 10, "float16", Keep("options"), size)
    return DepositPlan(CheckpointId("m", step=step), "q", layout, tuple(range(layout.blocks)))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 20_000), st.data())
def test_shards_leave_no_gap_whenever_they_start_and_whatever_blocks_they_plan(
    checkpoints: int, count: int, rows: int, data: st.DataObject
) -> None:
    """A later shard finds less missing, and another machine may plan other blocks."""
    suite = [CheckpointId("m", step=i) for i in range(checkpoints)]
    done: list[set[int]] = [set() for _ in suite]
    for shard in data.draw(st.permutations([Shard(i, count) for i in range(count)])):
        size = data.draw(st.sampled_from(SIZES))
        plans = [sized(i, rows, size) for i in range(checkpoints)]
        missing = [
            replace(p, blocks=tuple(b for b in p.blocks if not {*p.layout.rows(b)} <= done[i]))
            for i, p in enumerate(plans)
        ]
        for deposit in select_shard(Plan((*missing,), checkpoints, 1, 1), shard, suite).deposits:
            ran = {row for block in deposit.blocks for row in deposit.layout.rows(block)}
            assert not ran & done[deposit.checkpoint.step or 0]
            done[deposit.checkpoint.step or 0] |= ran
    assert done == [{*range(rows)}] * checkpoints


@pytest.mark.parametrize(("checkpoints", "count"), [(8, 2), (9, 2), (1, 4), (7, 4), (3, 3)])
def test_shards_of_a_new_bank_are_equal(checkpoints: int, count: int) -> None:
    suite = [CheckpointId("m", step=i) for i in range(checkpoints)]
    deposits = tuple(sized(i, 4 * 4096, 1024) for i in range(checkpoints))
    whole = Plan(deposits, checkpoints, 1, 1)
    parts = [select_shard(whole, Shard(i, count), suite) for i in range(count)]
    assert {part.rows for part in parts} == {whole.rows // count}
    assert {(part.missing_rows, part.missing_checkpoints) for part in parts} == {
        (whole.rows, checkpoints)
    }


@pytest.mark.parametrize(
    ("checkpoints", "count", "most"), [(5, 8, 1), (154, 100, 2), (154, 8, 20), (9, 4, 3)]
)
def test_small_prompt_sets_are_spread_over_the_shards(
    checkpoints: int, count: int, most: int
) -> None:
    suite = [CheckpointId("m", step=i) for i in range(checkpoints)]
    whole = Plan(tuple(sized(i, 1000, 1024) for i in range(checkpoints)), checkpoints, 1, 1)
    parts = [select_shard(whole, Shard(i, count), suite).deposits for i in range(count)]
    assert sum(map(len, parts)) == checkpoints
    assert max(map(len, parts)) == most


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "0/0", "1/x", "0/2/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="use i/n"):
        Shard.parse(text)


def slurm(task: int, first: int, last: int, count: int) -> dict[str, str]:
    names = {"ID": task, "MIN": first, "MAX": last, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in names.items()}


def test_a_slurm_array_selects_the_shard() -> None:
    assert Shard.from_slurm({}) is None
    assert Shard.from_slurm(slurm(3, 1, 8, 8)) == Shard(2, 8)
    with pytest.raises(UsageError, match="from 1 to 9"):
        Shard.from_slurm(slurm(3, 1, 9, 5))
