"""Who runs what: every block exactly once, whatever the number of workers and runs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.plan.sharding import Shard, WorkUnit, work_units
from logitbank.errors import UsageError
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import CheckpointId, Keep

pytestmark = pytest.mark.numerical


def plan(step: int, blocks: int, missing: set[int]) -> DepositPlan:
    layout = Layout(blocks * 4, 10, "float16", Keep("options"), 4)
    return DepositPlan(CheckpointId("m", step=step), "q", layout, tuple(sorted(missing)))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.data())
def test_every_block_is_somebody_s_once(
    checkpoints: int, workers: int, blocks: int, data: st.DataObject
) -> None:
    missing = data.draw(st.sets(st.integers(0, blocks - 1)))
    units = work_units(checkpoints, workers)
    plans = [plan(i, blocks, missing) for i in range(checkpoints)]
    by_number = [(p.index, block) for p in units for block in p.of(plans[p.index]).blocks]
    left = [
        (p.index, block) for p in units for d in p.share([plans[p.index]]) for block in d.blocks
    ]
    assert sorted(by_number) == [(i, b) for i in range(checkpoints) for b in sorted(missing)]
    assert sorted(left) == sorted(by_number)


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 29)), min_size=1, max_size=4), st.integers(1, 12))
def test_what_is_left_of_a_checkpoint_is_shared_equally(
    missing: list[set[int]], parts: int
) -> None:
    """Whichever blocks are committed, and in however many deposits: none has two more."""
    plans = [plan(0, 30, each) for each in missing]
    shares = [WorkUnit(0, part, parts).share(plans) for part in range(parts)]
    sizes = [sum(len(deposit.blocks) for deposit in share) for share in shares]
    assert sum(sizes) == sum(map(len, missing))
    assert max(sizes) - min(sizes) <= 1
    assert all(deposit.blocks for share in shares for deposit in share)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.data())
def test_shards_share_the_work_whatever_each_finds_done(
    checkpoints: int, count: int, blocks: int, data: st.DataObject
) -> None:
    """A task that starts later sees less missing; together they still do all that was."""
    at_first = {(i, b) for i in range(checkpoints) for b in range(blocks)}
    done: set[tuple[int, int]] = set()
    for shard in data.draw(st.permutations([Shard(i, count) for i in range(count)])):
        own = {
            (index, block)
            for index in range(checkpoints)
            for part in shard.of(
                [plan(index, blocks, {b for i, b in at_first - done if i == index})],
                index,
                checkpoints,
            )
            for block in part.blocks
        }
        assert not own & done, "nobody does another's"
        done |= own
    assert done == at_first


@pytest.mark.parametrize(("checkpoints", "workers"), [(8, 2), (9, 2), (1, 4), (7, 4), (3, 3)])
def test_all_workers_get_equal_parts(checkpoints: int, workers: int) -> None:
    load = [0.0] * workers
    for unit in work_units(checkpoints, workers):
        load[load.index(min(load))] += 1 / unit.parts
    assert max(load) - min(load) < 1e-9


def test_a_shard_of_5000_checkpoints_makes_no_piece_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def counted(index: int, part: int = 0, parts: int = 1) -> WorkUnit:
        made.append(index)
        return WorkUnit(index, part, parts)

    monkeypatch.setattr("logitbank.engine.plan.sharding.WorkUnit", counted)
    assert Shard(1, 3).of([plan(4_000, 1, {0})], 4_000, 5_000) == [plan(4_000, 1, {0})]
    assert made == [4_000]


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "0/0", "1/x", "0/2/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not i/n"):
        Shard.parse(text)


def slurm(task: int, first: int, last: int, count: int) -> dict[str, str]:
    names = {"ID": task, "MIN": first, "MAX": last, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in names.items()}


def test_a_slurm_array_says_which_shard() -> None:
    assert Shard.from_slurm({}) is None
    assert Shard.from_slurm(slurm(3, 1, 8, 8)) == Shard(2, 8)
    with pytest.raises(UsageError, match="some numbers are left out"):
        Shard.from_slurm(slurm(3, 1, 9, 5))
